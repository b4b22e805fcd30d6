// Bench does the same work with package jobs and with its peers, by turns in
// one run, and writes what each took as a Markdown table. It needs Linux. See
// README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	played, err := asChild(os.Args[1:], os.Stdout)
	if !played {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err == flag.ErrHelp {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	z := sizes{Starts: 200, Budget: time.Second, Workers: 8, Wakes: 10, Ring: 64 << 20, Cancels: 200}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	rounds := fs.Int("rounds", 5, "how often each contender does each work")
	mib := fs.Int64("mib", 256, "`MiB` of output in a flood")
	fs.IntVar(&z.Idle, "idle", 200, "`jobs` that are idle at once")
	fs.IntVar(&z.Writers, "writers", 100, "`jobs` that print small lines at once")
	fs.IntVar(&z.Lines, "lines", 1000, "`lines` that each of them prints")
	only := fs.String("only", "", "comma-separated `names` of works; all by default")
	patience := fs.Duration("patience", 0, "how long each turn waits for a quiet machine")
	svg := fs.String("svg", "", "`file` to write the chart to")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || *rounds < 1 || *mib < 1 || z.Idle < 1 || z.Writers < 1 || z.Lines < 1 {
		return fmt.Errorf("bad arguments; see -help")
	}
	z.Flood = *mib << 20
	ws, err := pick(works(z), *only)
	if err != nil {
		return err
	}
	noise := startNoiseMeter()
	rows, err := measure(ctx, ws, z, *rounds, *patience, stderr)
	if err != nil {
		return err
	}
	facts := fmt.Sprintf("%s; median of %d rounds.", machine(), *rounds)
	fmt.Fprintf(stdout, "%s Others took %.0f %% of the processors meanwhile.\n", facts, 100*noise.others())
	fmt.Fprintf(stdout, "In brackets the ratio to the bare alternative; less is better.\n\n")
	if err := writeTable(stdout, rows); err != nil || *svg == "" {
		return err
	}
	var b strings.Builder
	if err := writeChart(&b, rows, facts); err != nil {
		return err
	}
	return os.WriteFile(*svg, []byte(b.String()), 0o644)
}

// pick returns the works with the given names, all if there are none.
func pick(ws []work, names string) ([]work, error) {
	if names == "" {
		return ws, nil
	}
	var picked []work
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(ws, func(w work) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no work %q", name)
		}
		picked = append(picked, ws[i])
	}
	return picked, nil
}

// machine says what the numbers depend on.
func machine() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return fmt.Sprintf("%d cores, Linux %s, %s", runtime.NumCPU(), version, runtime.Version())
}
