# The far side of a job that runs through a Shell. The text is for any POSIX
# sh. It goes, with a call at its end, to a shell that reads it from its
# standard input: as all of it is functions, nothing happens when the connection
# is lost on the way. A copy in the job's directory is what the processes run
# that stay with the job:
#
#   watch (W)  the leader of a session of its own. It waits for the job and,
#              at the end, gives rc-CODE its name.
#   copy (C)   in W's process group. It moves what the job prints from a FIFO
#              into the files out-K and counts what finds no room.
#   job (J)    the leader of the job's session. It runs the command as a child,
#              so that the number of the job's group is nobody else's as long
#              as J lives, and kills what the command left running.
#
# State is the existence of files, and numbers are parts of their names. A new
# name needs no room on a full disk, and the text of no file is believed. All
# variables begin with aj_, as a job must find the environment as it was.

set +e +u +f +C
IFS=$(printf ' \t\n.')
IFS=${IFS%.}

aj_nap() { sleep "$1" 2>/dev/null || sleep 1; }

# aj_stat sets mode, owner and size of a file, and fails if there is none.
aj_stat() {
	set -- $(ls -ldn "$1" 2>/dev/null)
	aj_mode=${1-} aj_owner=${3-} aj_size=${5-0}
	[ -n "$aj_mode" ]
}

# aj_suffix sets aj_end to what follows the prefix $1 in the name of a file, and
# fails if there is no such file.
aj_suffix() {
	set -- "$1" "$1"*
	aj_end=${2#"$1"}
	[ -e "$2" ]
}

# aj_base sets aj_b to the private directory, which it makes if $1 is "make".
# Where it is not safe aj_why says so. That of a job which has a directory is the
# one where that is: HOME may have had no room when it was started.
aj_base() {
	aj_why= aj_make=$1
	aj_uid=$(id -u)
	set -- "${HOME:+$HOME/.agentjobs}" "${TMPDIR:-/tmp}/.agentjobs-$aj_uid"
	[ -d "$1/$aj_id" ] || ! [ -d "$2/$aj_id" ] || shift
	for aj_b; do
		[ -n "$aj_b" ] || continue
		[ "$aj_make" != make ] || (umask 077 && mkdir "$aj_b") 2>/dev/null
		[ -d "$aj_b" ] || [ -h "$aj_b" ] || continue
		aj_stat "$aj_b"
		case $aj_mode in
		d*) [ "$aj_owner" = "$aj_uid" ] || aj_why="$aj_b belongs to another user" ;;
		*) aj_why="$aj_b is no directory" ;;
		esac
		case $aj_mode in
		drwx------*) ;;
		*) [ -n "$aj_why" ] || chmod 700 "$aj_b" 2>/dev/null || aj_why="$aj_b is open to others" ;;
		esac
		aj_d=$aj_b/$aj_id
		[ -z "$aj_why" ]
		return
	done
	aj_b=
	aj_why="neither HOME nor ${TMPDIR:-/tmp} has room for a directory"
	return 1
}

# aj_proc sets aj_line to what /proc/PID/stat says of process $1. Its name is its
# own to choose, with newlines too, but ends with the last ")".
aj_proc() {
	aj_line=
	while read -r aj_part || [ -n "$aj_part" ]; do
		aj_line="$aj_line $aj_part"
	done 2>/dev/null <"/proc/$1/stat"
	[ -n "$aj_line" ]
}

# aj_began prints when a live process began, in the words of its kernel.
aj_began() {
	if ! [ -r /proc/self/stat ]; then
		set -- "$(LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1" 2>/dev/null | tr -s ' ' _)"
		[ -n "$1" ] && echo "$1"
		return
	fi
	aj_proc "$1" || return 1
	set -- ${aj_line##*) }
	case $1 in [ZXx]) return 1 ;; esac
	echo "${20}"
}

# aj_booted sets aj_boot to what no two runs of one machine have in common.
aj_booted() { read -r aj_boot 2>/dev/null </proc/sys/kernel/random/boot_id || aj_boot=-; }

# aj_sign writes who the calling process is into the file $1.
aj_sign() {
	aj_booted
	echo "$$ $(aj_began $$ || echo -) $aj_boot" 2>/dev/null >"$1.new" && [ -s "$1.new" ] && mv "$1.new" "$1"
}

# aj_alive reports whether the process lives that has signed the file $1, and
# sets aj_pid to its number.
aj_alive() {
	aj_pid=0
	read -r aj_p aj_t aj_o 2>/dev/null <"$1" || return 1
	case $aj_p in '' | 0 | 1 | *[!0-9]*) return 1 ;; esac
	if [ -r /proc/self/stat ]; then
		aj_booted
		[ "$aj_o" = "$aj_boot" ] && [ "$aj_t" = "$(aj_began "$aj_p")" ] || return 1
	else
		kill -0 "$aj_p" 2>/dev/null && [ "$aj_t" = "$(aj_began "$aj_p" || echo -)" ] || return 1
	fi
	aj_pid=$aj_p
}

# aj_ours reports whether the environment of process $1 has the job's id.
aj_ours() {
	tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" |
		LC_ALL=C grep -q "^AGENT_JOB_ID=\(.*:\)*$aj_id\(:.*\)*\$" 2>/dev/null
}

# aj_marked prints the processes that have the job's id, one grep for all of
# them where it is not thrown by NULs.
aj_marked() {
	if printf 'a\0b\n' | grep -q b; then
		set -- $(grep -l "$aj_id" /proc/[0-9]*/environ 2>/dev/null)
	else
		set -- /proc/[0-9]*/environ
	fi
	for aj_f; do
		aj_p=${aj_f#/proc/}
		aj_p=${aj_p%/environ}
		aj_ours "$aj_p" && printf '%s ' "$aj_p"
	done
}

# aj_member reports whether process $1 lives and is of the job but not J, whose
# number is $2, or 0 where J is dead. It sets aj_name and aj_group. Children of J
# are of the job only until the command has ended; then they are J's helpers.
aj_member() {
	[ "$1" != "$2" ] && aj_proc "$1" || return 1
	aj_name=${aj_line#*\(}
	aj_name=${aj_name%)*}
	set -- "$1" "$2" ${aj_line##*) }
	aj_group=$5
	case $3 in [ZXx]) return 1 ;; esac
	[ -z "$aj_coded" ] || [ "$4" != "$2" ] || return 1
	if [ "$2" != 0 ] && { [ "$5" = "$2" ] || [ "$6" = "$2" ]; }; then return; fi
	case $aj_marks in *" $1 "*) ;; *) return 1 ;; esac
}

# aj_members sets aj_list to the numbers of the job's processes and aj_names to
# lines of number and name. It makes no process that it would find itself.
aj_members() {
	aj_list= aj_names=
	if ! [ -r /proc/self/stat ]; then
		[ "$1" = 0 ] || [ "$1" = $$ ] || aj_names=$(ps -A -o pgid= -o stat= -o pid= -o comm= |
			sed -n "s/^ *$1 *[^ Z][^ ]* *\([0-9]* .*\)/\1/p" | grep -v "^$1 ")
		return
	fi
	aj_marks=" $(aj_marked)" aj_coded=
	! aj_suffix "$aj_d/code-" || aj_coded=$aj_end
	for aj_f in /proc/[0-9]*; do
		aj_member "${aj_f#/proc/}" "$1" || continue
		aj_list="$aj_list ${aj_f#/proc/}"
		aj_names="$aj_names${aj_f#/proc/} $aj_name
"
	done
}

# aj_outside sends signals to the job's processes outside its group. J is $1, or
# 0.
aj_outside() {
	aj_lead=$1
	shift
	aj_members "$aj_lead"
	for aj_p in $aj_list; do
		aj_member "$aj_p" "$aj_lead" || continue
		[ "$aj_group" != "$aj_lead" ] || continue
		for aj_s; do kill -s "$aj_s" "$aj_p" 2>/dev/null; done
	done
}

# aj_signal sends signals to all the job's processes.
aj_signal() {
	aj_outside "$@"
	shift
	for aj_s; do [ "$aj_lead" = 0 ] || kill -s "$aj_s" -- "-$aj_lead" 2>/dev/null; done
}

# What stays with the job.

# aj_spawn makes a process that is orphaned at once. A job of "&" would ignore
# SIGINT, and all below it; a pipeline does not, and dies with its shell.
aj_spawn() {
	setsid sh "$aj_d/run" watch "$@" </dev/null >/dev/null 2>&1 | kill -s KILL $$
}

aj_watch() {
	trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
	aj_sign "$aj_d/w" && mkfifo "$aj_d/pipe" || exec mv "$aj_d/go" "$aj_d/failed"
	(exec sh "$aj_d/run" copy "$@" <"$aj_d/pipe" >/dev/null 2>&1) &
	(exec setsid sh "$aj_d/run" job "$@" >"$aj_d/pipe" 2>&1)
	aj_code=$?
	if aj_suffix "$aj_d/code-"; then aj_code=$aj_end; else aj_orphaned "$2"; fi
	aj_await final 20 || {
		# Somebody keeps the pipe open. The TERM is for the reader's dd.
		mv "$aj_d/open" "$aj_d/over"
		kill -s TERM 0
		aj_await final 200
	}
	rm -f "$aj_d/pipe" "$aj_d"/rc-* # which the job may have made
	mv "$aj_d/end" "$aj_d/rc-$aj_code"
}

# aj_orphaned does what J would have done, which somebody has killed. What is
# left is known by its environment only.
aj_orphaned() {
	aj_members 0
	[ -z "$aj_names" ] || printf %s "$aj_names" 2>/dev/null >"$aj_d/left"
	[ "$1" != keep ] || [ -e "$aj_d/stopping" ] || return
	[ -z "$aj_names" ] || for aj_i in 1 2 3; do aj_outside 0 KILL; done
}

# aj_await waits for a file, $2 hundredths of a second or more.
aj_await() {
	set -- "$1" "$2" 0
	until [ -e "$aj_d/$1" ]; do
		[ "$3" -lt "$2" ] || return 1
		set -- "$1" "$2" $(($3 + 1))
		aj_nap 0.01
	done
}

aj_job() {
	trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
	aj_sign "$aj_d/j" || exec mv "$aj_d/go" "$aj_d/failed"
	exec 2>/dev/null # a shell says there what signal its child died of
	(
		umask "$1"
		AGENT_JOB_ID=${AGENT_JOB_ID:+$AGENT_JOB_ID:}$aj_id LLM_OUTPUT=$aj_d.result/result
		export AGENT_JOB_ID LLM_OUTPUT
		exec sh "$aj_d/command" 2>&1
	)
	aj_code=$?
	exec >/dev/null
	mv "$aj_d/code" "$aj_d/code-$aj_code"
	if [ -e "$aj_d/stopping" ]; then
		# The KILL comes from there, once the others had their time.
		for aj_i in 1 2 3 4 5 6 7 8 9 10; do aj_nap 6; done
	else
		aj_drain "$4"
	fi
	aj_members $$
	[ -z "$aj_names" ] || printf %s "$aj_names" 2>/dev/null >"$aj_d/left"
	[ "$2" != keep ] || [ -e "$aj_d/stopping" ] || exit
	[ -z "$aj_names" ] || for aj_i in 1 2 3; do aj_outside $$ KILL; done
	kill -s KILL 0
}

# aj_drain waits while others hold the pipe: $1 tenths of a second at most, and
# not longer than it has been silent for two.
aj_drain() {
	aj_await final 5 && return
	set -- "$1" 0 -1
	while [ "$2" -lt "$1" ] && ! [ -e "$aj_d/final" ]; do
		aj_total
		aj_last=$3
		set -- "$1" $(($2 + 2)) $((aj_sum + aj_lost))
		[ "$3" != "$aj_last" ] || return
		aj_nap 0.2
	done
}

# aj_total sets aj_sum to how much was stored in the files, deleted ones
# included, and aj_lost to how much was not.
aj_total() {
	aj_k=0
	for aj_f in "$aj_d"/out-*; do
		[ -e "$aj_f" ] || continue
		[ "${aj_f##*-}" -le "$aj_k" ] 2>/dev/null || aj_k=${aj_f##*-}
	done
	aj_piece=1 # of a directory that a stop has made: there is none
	! aj_suffix "$aj_d/piece-" || aj_piece=$aj_end
	aj_stat "$aj_d/out-$aj_k"
	aj_sum=$((aj_k * aj_piece + aj_size))
	aj_lost=0
	aj_suffix "$aj_d/lost-" && aj_lost=$aj_end
}

# aj_copy stores the output in pieces of $3 bytes: the first and the last three
# are kept. dd passes on at once what it reads, tee stores it, and wc counts it
# whether it could be stored or not.
aj_copy() {
	trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
	aj_k=0 aj_had=0 aj_lost=0
	while :; do
		aj_room=$(($3 - aj_had)) aj_n=$((($3 - aj_had) / 65536))
		if [ "$aj_n" -gt 0 ]; then aj_room=65536; else aj_n=1; fi
		aj_n=$(dd bs="$aj_room" count="$aj_n" 2>/dev/null |
			(trap '' TERM && exec tee -a "$aj_d/out-$aj_k" 2>/dev/null) |
			(trap '' TERM && exec wc -c))
		aj_n=$((aj_n + 0))
		[ "$aj_n" -gt 0 ] || break
		aj_stat "$aj_d/out-$aj_k"
		aj_miss=$((aj_n - aj_size + aj_had)) aj_had=$aj_size
		if [ "$aj_miss" -gt 0 ]; then
			mv "$aj_d/lost-$aj_lost" "$aj_d/lost-$((aj_lost + aj_miss))"
			aj_lost=$((aj_lost + aj_miss))
		fi
		! [ -e "$aj_d/over" ] || break
		if [ "$aj_had" -ge "$3" ]; then
			aj_k=$((aj_k + 1)) aj_had=0
			true 2>/dev/null >"$aj_d/out-$aj_k" # ":" would end the shell if it failed
			[ "$aj_k" -lt 4 ] || rm -f "$aj_d/out-$((aj_k - 3))"
		fi
	done
	trap '' TERM
	mv "$aj_d/open" "$aj_d/final" 2>/dev/null || mv "$aj_d/over" "$aj_d/final"
	exec cat >/dev/null # for those who go on printing
}

# What scripts ask for. Each prints lines; those that nobody knows are ignored.

aj_fail() {
	echo "error $1 $(printf '%s' "$2" | tr '\n' ' ')"
	[ -z "$3" ] || rm -rf "$3" "$3.result"
}

aj_start() {
	aj_missing=
	for aj_f in setsid base64 mkfifo dd tee wc tail head grep tr ls mv rm cat id; do
		command -v "$aj_f" >/dev/null 2>&1 || aj_missing="$aj_missing $aj_f"
	done
	[ -z "$aj_missing" ] || { aj_fail missing "${aj_missing# }" && return; }
	aj_base make || { aj_fail base "$aj_why" && return; }
	aj_tidy
	aj_mask=$(umask)
	umask 077
	if aj_err=$(mkdir "$aj_d" 2>&1); then
		aj_prepare || return
		sh "$aj_d/run" spawn "$aj_mask" "$aj_keep" "$aj_piece" "$aj_drain" </dev/null >/dev/null 2>&1
	elif ! [ -d "$aj_d" ]; then
		aj_fail base "$aj_err" && return
	fi
	aj_i=0
	until [ -e "$aj_d/j" ]; do
		aj_i=$((aj_i + 1))
		[ -d "$aj_d" ] || { aj_fail base "the start was taken back" && return; }
		if [ -e "$aj_d/failed" ] || [ "$aj_i" -gt 1000 ]; then
			aj_fail base "$aj_d cannot be written to, or no process can be made" "$aj_d" && return
		fi
		aj_nap 0.01
	done
	echo "state started"
}

# aj_prepare fills the job's directory. The command comes as base64, so that
# nothing in it is ever read by this shell.
aj_prepare() {
	aj_err=$({
		mkdir "$aj_d.result" && : >"$aj_d.result/result" &&
			printf '%s\n' "$aj_text" | base64 -d >"$aj_d/run" && [ -s "$aj_d/run" ] &&
			printf '%s\n' "$aj_command" | base64 -d >"$aj_d/command" && [ -s "$aj_d/command" ] &&
			printf '%s\n' "$aj_where" | base64 -d >"$aj_d/where" &&
			for aj_f in go code end open out-0 lost-0 "piece-$aj_piece"; do : >"$aj_d/$aj_f" || exit; done
	} 2>&1) || { aj_fail base "$aj_err" "$aj_d" && return 1; }
	aj_stat "$aj_d/command"
	[ "$aj_size" = "$aj_length" ] || { aj_fail base "there is no room for the command in $aj_d" "$aj_d" && return 1; }
	aj_err=$(. "$aj_d/where" 2>&1) || { aj_fail dir "$aj_err" "$aj_d" && return 1; }
}

# aj_tidy removes what jobs left that ended a week ago and that nobody has
# collected.
aj_tidy() {
	for aj_f in $(find "$aj_b/." ! -name . -prune -name 'job_*' -mtime +7 2>/dev/null); do
		aj_f=$aj_b/${aj_f##*/}
		case $aj_f in *.result) [ ! -d "${aj_f%.result}" ] && rm -rf "$aj_f" && continue || continue ;; esac
		aj_alive "$aj_f/w" || aj_alive "$aj_f/j" || rm -rf "$aj_f" "$aj_f.result"
	done
}

# aj_state prints how the job stands. Whoever lives is asked first: W gives the
# code before it ends, and until then the job could have made a file of that name.
# Where somebody has killed W and J it runs on as long as one of its processes.
aj_state() {
	aj_now=lost
	if aj_alive "$aj_d/w" || aj_alive "$aj_d/j"; then
		aj_now=running
	elif aj_suffix "$aj_d/rc-" || aj_suffix "$aj_d/code-"; then
		aj_now="ended $aj_end"
	else
		aj_members 0
		[ -z "$aj_names" ] || aj_now=running
	fi
	echo "state $aj_now"
}

# aj_gone_state prints the state of a job whose directory is not there: its
# processes are told by its id.
aj_gone_state() {
	aj_members 0
	if [ -n "$aj_names" ]; then echo "state running"; else echo "state none"; fi
}

# aj_look shows the state and up to aj_max bytes of output from aj_off on.
aj_look() {
	aj_base && [ -d "$aj_d" ] || { aj_gone_state && return; }
	aj_state
	aj_total
	aj_k=$((aj_off / aj_piece))
	while ! [ -e "$aj_d/out-$aj_k" ] && [ $((aj_k * aj_piece)) -lt "$aj_sum" ]; do
		aj_k=$((aj_k + 1)) aj_off=$((aj_k * aj_piece))
	done
	echo "output $aj_sum $aj_lost $aj_off"
	echo data:
	[ "$aj_off" -ge "$aj_sum" ] ||
		tail -c +$((aj_off - aj_k * aj_piece + 1)) "$aj_d/out-$aj_k" 2>/dev/null | head -c "$aj_max" | base64
	aj_result
	case $aj_now in ended*) [ ! -f "$aj_d/left" ] || sed 's/^/left /' "$aj_d/left" ;; esac
}

# aj_result shows how large the result is, the disk it takes if that may be
# more than aj_most, and its end once all else has been seen.
aj_result() {
	aj_stat "$aj_d.result/result"
	case $aj_mode in
	-*) ;;
	*) echo "result ${aj_mode:-none} 0 0" && return ;;
	esac
	aj_disk=0
	[ "$aj_most" -le 0 ] || [ "$aj_size" -le "$aj_most" ] || {
		set -- $(du -k "$aj_d.result/result" 2>/dev/null)
		aj_disk=$((${1:-0} * 1024))
	}
	echo "result - $aj_size $aj_disk"
	case $aj_now in ended*) [ $((aj_sum - aj_off)) -le "$aj_max" ] || return ;; *) return ;; esac
	echo text:
	tail -c "$aj_last" "$aj_d.result/result" 2>/dev/null | base64
}

# aj_stop sends TERM once, waits aj_wait tenths of a second for it to do, and
# kills what is left if aj_force is 1. It shows who lives on.
aj_stop() {
	aj_base make || { aj_fail base "$aj_why" && return; }
	# An id that is taken cannot be started any more, by a script on its way. Where
	# somebody removed the directory the job may run all the same.
	mkdir -m 700 "$aj_d" 2>/dev/null && : >"$aj_d/go"
	aj_names=
	aj_state >/dev/null
	if [ "${aj_now%% *}" != ended ]; then
		aj_alive "$aj_d/j"
		mv "$aj_d/go" "$aj_d/stopping" 2>/dev/null && [ "$aj_force" = 0 ] && aj_signal "$aj_pid" TERM CONT
		aj_gone "$aj_wait" && aj_force=1
		[ "$aj_force" = 0 ] || aj_kill
	fi
	aj_state
	printf %s "$aj_names" | sed 's/^/left /'
}

# aj_quiet reports whether only J is left, which has seen the command's end, or
# nothing.
aj_quiet() {
	aj_alive "$aj_d/j"
	aj_members "$aj_pid"
	[ -z "$aj_names" ] && { [ "$aj_pid" = 0 ] || aj_suffix "$aj_d/code-"; }
}

# aj_clock sets aj_up to hundredths of a second, or guesses that ten have passed.
aj_clock() {
	if read -r aj_up aj_line 2>/dev/null </proc/uptime; then
		aj_up=${aj_up%.*}${aj_up#*.}
	else
		aj_up=$((${aj_up:-0} + 10))
	fi
}

# aj_gone waits $1 tenths of a second for that.
aj_gone() {
	aj_clock
	set -- $((aj_up + 10 * $1))
	until aj_quiet; do
		aj_clock
		[ "$aj_up" -lt "$1" ] || return 1
		aj_nap 0.05
	done
}

# aj_kill kills the job until nothing of it is left and W has said so, or for two
# seconds or a little more. aj_names holds what was left when it was called.
aj_kill() {
	for aj_i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		aj_alive "$aj_d/j"
		if [ -n "$aj_names" ]; then
			aj_signal "$aj_pid" KILL
		elif [ "$aj_pid" != 0 ]; then
			kill -s KILL -- "-$aj_pid" 2>/dev/null
		fi
		aj_nap 0.02
		aj_alive "$aj_d/j"
		[ -z "$aj_names" ] || aj_members "$aj_pid"
		[ -n "$aj_names" ] || [ "$aj_pid" != 0 ] || break
		aj_nap 0.1
	done
	for aj_i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		aj_alive "$aj_d/w" || break
		aj_nap 0.1
	done
}

aj_remove() {
	aj_base && [ -d "$aj_d" ] || return
	aj_state >/dev/null
	[ "$aj_now" = running ] || rm -rf "$aj_d" "$aj_d.result"
}

# aj_frame runs its arguments and marks what they print.
aj_frame() {
	printf '\n%s begin\n' "$aj_nonce"
	"$@"
	printf '%s end\n' "$aj_nonce"
}
