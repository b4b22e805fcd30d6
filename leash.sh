# Kills the processes of the jobs it was told of once its standard input ends:
# the only one who can write to that is the host, so the host is dead. A line is
# one of
#
#	+ PID START ID	a job, its leader and when that was started
#	+ 0 NOW ID	a job that is about to be started
#	- ID		a job that has ended
#
# Times are in the unit of /proc, hundredths of a second since boot.

trap '' HUP INT QUIT PIPE TERM
unset LEASH
variable=$1 # that has a chain of ids in a job's environment
zero=       # set if grep can read what ends with NUL
printf 'a\0b\0' | grep -qz '^b' && zero=1
nl='
'

# Of n jobs the one at place i is id_$i; job_$id holds PID and START, at_$id the
# place. The last takes the place of one that ends.
n=0
while read -r op pid start id; do
	[ "$op" = + ] || id=$pid
	eval "at=\${at_$id-}"
	case $op$at in
	+)
		n=$((n + 1))
		eval "at_$id=$n id_$n=$id job_$id='$pid $start'"
		;;
	+*)
		eval "job_$id='$pid $start'"
		;;
	-?*)
		eval "last=\$id_$n"
		eval "id_$at=$last at_$last=$at"
		unset "at_$id" "job_$id" "id_$n"
		n=$((n - 1))
		;;
	esac
done
[ $n -gt 0 ] || exit 0

now() {
	read -r up rest </proc/uptime
	now=$((${up%.*} * 100 + 1${up#*.} - 100)) # 08 alone would be octal
}

# stats prints a line for each process: its number, and what /proc/PID/stat says
# behind its name. The name is its own to choose, newlines and parentheses too,
# but it ends with the last ") ", and has no room for a header like those of
# head. A shell reads byte by byte, which takes it half a millisecond a file, so
# two processes do that for all; sed alone would give up at the first file of one
# that dies.
stats() {
	head -n 20 /dev/null "$@" | sed -n '
		/^==> \/proc\/[0-9]*\/stat <==$/ {
			x
			b record
		}
		H
		$!d
		x
		: record
		s/\n/ /g
		s/^==> .proc.\([0-9]*\).stat <== .*) /\1 /p'
}

# parse takes a line of that, as fields.
parse() {
	p=$1 parent=$3 session=$5 start=${21}
	case $2${19} in # a zombie, but for one whose other threads go on
	[ZXx][01]) dead=1 ;;
	*) dead= ;;
	esac
}

# take counts process $1, started at $2, to the jobs.
take() {
	found="$found $1"
	eval "took_$1=$2"
}

# mine reports whether a chain of ids has one of a job in it.
mine() {
	IFS=:
	set -- $1
	IFS=' '
	for id; do
		case $id in
		'' | *[!0-9A-Za-z_]*) ;;
		*)
			eval "at=\${at_$id-}"
			[ -z "$at" ] || return 0
			;;
		esac
	done
	return 1
}

# chains prints "/proc/PID/environ:VARIABLE=CHAIN" of each file that has one.
chains() {
	if [ -n "$zero" ]; then
		grep -Haosz "^$variable=.*" "$@" | tr '\0\n' '\n '
		return
	fi
	for file; do
		tr '\0\n' '\n ' <"$file" | grep "^$variable=" | while read -r chain; do
			printf '%s:%s\n' "$file" "$chain"
		done
	done
}

# ours reports whether process $1 with parent $2 and session $3, started at $4,
# belongs to a job: by its environment, as a child of one that does, or by its
# session. While the host lived it kept the leaders from being reaped, so that
# their numbers were theirs alone.
ours() {
	eval "env=\${env_$1-} took=\${took_$2-} lead=\${lead_$3-}"
	[ -z "$env" ] || return 0
	[ -z "$took" ] || [ "$4" -lt "$took" ] || return 0
	[ -n "$lead" ] && [ "$4" -le "$eof" ]
}

# look finds the live processes of the jobs.
look() {
	for p in $found; do unset "took_$p"; done
	found= others= files=
	IFS=$nl
	for line in $(set +f; stats /proc/[1-9]*/stat); do
		IFS=' '
		parse $line
		eval "lead=\${lead_$p-}"
		# A leader's number that means somebody else now says nothing any more,
		# neither alone nor as that of a session.
		if [ -n "$lead" ] && [ "$lead" != "$start" ]; then
			unset "lead_$p"
			lead=
		fi
		if [ -n "$dead" ] || [ "$start" -lt "$since" ] || [ "$p" -lt 2 ] || [ "$p" = $$ ]; then
			continue
		fi
		if [ -n "$lead" ]; then
			take "$p" "$start"
			continue
		fi
		others="$others $p:$parent:$session:$start"
		files="$files /proc/$p/environ"
	done
	IFS=$nl
	[ -z "$files" ] || for line in $(IFS=' '; chains $files); do
		IFS=' '
		p=${line#/proc/}
		p=${p%%/*}
		mine "${line#*=}" && eval "env_$p=1"
	done
	IFS=' '
	# Whose child is one of a job's is one too, and what it is the parent of.
	more=1
	while [ -n "$more" ]; do
		more= rest=
		for entry in $others; do
			IFS=:
			set -- $entry
			IFS=' '
			if ours "$@"; then
				take "$1" "$4"
				more=1
			else
				rest="$rest $entry"
			fi
			unset "env_$1"
		done
		others=$rest
	done
}

# send sends signals to the processes found, right after one more look at who
# they are, and leaves in left how many were alive.
send() {
	signals=$* left=0
	set -- $found
	while [ $# -gt 0 ]; do
		files=
		while [ $# -gt 0 ] && [ ${#files} -lt 1000 ]; do
			files="$files /proc/$1/stat"
			shift
		done
		IFS=$nl
		for line in $(IFS=' '; stats $files); do
			IFS=' '
			parse $line
			eval "took=\${took_$p-}"
			if [ -z "$dead" ] && [ "$took" = "$start" ]; then
				left=$((left + 1))
				for signal in $signals; do kill -s $signal "$p"; done
			fi
		done
		IFS=' '
	done
}

pause() { sleep 0.02 || sleep 1; } # not every sleep knows fractions

set -f
IFS=' '
now
eof=$now since=$now found=
while [ $n -gt 0 ]; do
	eval "id=\$id_$n"
	eval "set -- \$job_$id"
	[ "$1" -lt 2 ] || eval "lead_$1=$2"
	[ "$2" -gt $since ] || since=$2
	n=$((n - 1))
done
since=$((since - 1)) # clocks and start times are rounded each in its way

look
send TERM CONT
while [ $left -gt 0 ]; do
	now
	[ $now -lt $((eof + 30)) ] || break
	pause
	send
done
send KILL
# More may have been born, or overlooked: in the midst of an exec a process
# shows no environment. Only what is not found twice is gone.
quiet=0
while [ $quiet -lt 2 ]; do
	look
	send KILL
	now
	[ $now -lt $((eof + 200)) ] || break
	quiet=$((quiet + 1))
	[ $left -eq 0 ] || quiet=0
	pause
done
