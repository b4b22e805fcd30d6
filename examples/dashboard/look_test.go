package dashboard_test

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var shots = flag.String("shots", "", "directory to write the screenshots of the documentation to")

// work is what the jobs of the screenshots do. Each has its time, so that the
// timeline has something to show.
var work = []struct{ owner, tool, tag, text string }{
	{"session one", "build", "release", `for f in scan parse check emit; do echo "compiling $f.go"; sleep 0.5; done; echo built`},
	{"session one", "lint", "", `sleep 0.7; echo "main.go:12: unused variable"; exit 1`},
	{"session one", "test", "", `for i in 1 2 3 4 5 6 7 8 9; do echo "ok   case $i"; sleep 0.1; done; sleep 60`},
	{"session two", "serve", "port 8080", `echo listening; sleep 60`},
	{"session two", "page", "prints HTML", `echo '<script>document.title = "taken over"</script>'; sleep 60`},
}

func TestTheScreenshotsShowAllStates(t *testing.T) {
	dir := *shots
	if dir == "" {
		dir = t.TempDir()
	}
	host := newHost(t, jobs.Config{MaxRunning: 10})
	owners := map[string]*jobs.Supervisor{}
	ids := map[string]string{}
	for _, w := range work {
		if owners[w.owner] == nil {
			owners[w.owner] = newChild(t, host, w.owner)
		}
		job, err := owners[w.owner].Start(t.Context(), jobs.Spec{Tool: w.tool, Tag: w.tag, Argv: []string{"sh", "-c", w.text}})
		require.NoError(t, err)
		ids[w.tool] = job.ID
	}
	b := open(t, serve(t, host, brisk), 1200)
	b.until(fmt.Sprintf(`document.querySelector('[data-id="%s"] .completed') !== null`, ids["build"]))
	b.click(`[aria-label="Cancel serve (port 8080)"]`)
	b.until(`document.querySelector(".outcome.cancelled") !== null`)
	b.click(fmt.Sprintf(`[data-id="%s"] .pick`, ids["test"]))
	b.until(`document.getElementById("tail").textContent.includes("case 9")`)

	pictures := map[string][]byte{}
	for _, p := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1200}, {"dark", "dark", 1200}, {"narrow", "light", 390}} {
		b.run(scheme(p.scheme), chromedp.EmulateViewport(p.width, 800))
		b.until(fmt.Sprintf(`window.innerWidth === %d && document.getElementById("chart").getAttribute("viewBox").split(" ")[2] === String(document.getElementById("chart").clientWidth)`, p.width))
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		config, err := png.DecodeConfig(bytes.NewReader(picture))
		require.NoError(t, err)
		require.EqualValues(t, p.width, config.Width)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "dashboard-"+p.name+".png"), picture, 0o644))
		pictures[p.name] = picture
	}
	require.NotEqual(t, pictures["light"], pictures["dark"])
}

// colour reads "rgb(1, 2, 3)".
func colour(t *testing.T, s string) (c [3]float64) {
	t.Helper()
	_, err := fmt.Sscanf(s, "rgb(%f, %f, %f)", &c[0], &c[1], &c[2])
	require.NoError(t, err, s)
	return c
}

// contrast is that of WCAG: 4.5 and more can be read.
func contrast(a, b [3]float64) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(c [3]float64) float64 {
	for i := range c {
		if c[i] /= 255; c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}
