package dashboard_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/dashboard"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// hostile is output, and a name, that would take the page over if it were ever
// read as HTML.
const hostile = `<img src=x onerror="window.taken=1"><script>window.taken=1</script><svg onload="window.taken=1">`

var brisk = dashboard.Options{Refresh: 50 * time.Millisecond}

func TestABrowserShowsAJobAndItsTailGrows(t *testing.T) {
	host := newHost(t, jobs.Config{})
	ann := newChild(t, host, "ann")
	p := newPuppet(t, ann, "build")
	b := open(t, serve(t, host, brisk), 1200)
	row := fmt.Sprintf(`document.querySelector('[data-id="%s"]')`, p.ID)
	b.until(row + `?.innerText.includes("build")`)
	b.until(`[...document.querySelectorAll("h2")].some(h => h.innerText.startsWith("ann"))`)

	p.say("one\n")
	b.until(`document.getElementById("tail").textContent === "one\n"`)
	p.say("two\n")
	b.until(`document.getElementById("tail").textContent === "one\ntwo\n"`)

	second := newPuppet(t, host, "test") // a job that starts while the page is open
	b.until(fmt.Sprintf(`document.querySelector('[data-id="%s"] .running') !== null`, second.ID))
	p.end()
	b.until(row + `.innerText.includes("completed")`)
	b.until(`document.getElementById("ends").textContent.includes("build completed")`)
	require.Equal(t, "polite", b.text(`document.getElementById("ends").ariaLive`))
	require.Equal(t, "one\ntwo\n", b.text(`document.getElementById("tail").textContent`))

	b.click(fmt.Sprintf(`[data-id="%s"] .pick`, second.ID))
	second.say("other\n")
	b.until(`document.getElementById("tail").textContent === "other\n"`)
}

func TestABrowserCancelsARealProcess(t *testing.T) {
	host := newHost(t, jobs.Config{})
	job, err := host.Start(t.Context(), jobs.Spec{Tool: "server", Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	b := open(t, serve(t, host, brisk), 1200)
	b.click(`[aria-label="Cancel server"]`)
	snap := ended(t, host, job.ID)
	require.Equal(t, jobs.Cancelled, snap.State)
	require.Empty(t, snap.Survivors)
	require.ErrorIs(t, syscall.Kill(job.PID, 0), syscall.ESRCH)
	b.until(`document.querySelector(".outcome").innerText.includes("cancelled")`)
	b.until(`document.querySelector(".cancel").hidden`)
	require.Len(t, host.Drain(), 1, "its owner is told")
}

func TestHostileOutputAndNamesStayTextInABrowser(t *testing.T) {
	host := newHost(t, jobs.Config{})
	ann := newChild(t, host, hostile)
	p := newPuppet(t, ann, hostile)
	b := open(t, serve(t, host, brisk), 390)
	p.say(hostile + "\n\x1b]8;;javascript:alert(1)\aclick\x1b]8;;\a\n")
	b.until(`document.getElementById("tail").textContent.includes("click")`)
	require.Equal(t, hostile+"\nclick\n", b.text(`document.getElementById("tail").textContent`))
	require.Equal(t, hostile, b.text(`document.querySelector(".pick").textContent`))
	p.end()
	b.until(`document.getElementById("ends").textContent.includes("onerror")`)
	require.Equal(t, "undefined", b.text(`typeof window.taken`))
	require.Equal(t, "0", b.text(`document.querySelectorAll("img, a, body script, main svg svg").length`))
	requireNoSideways(t, b)

	// Nor could a mistake in the page make an element of it.
	made := b.text(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "made" } catch (e) { return e.name } })()`)
	require.Equal(t, "TypeError", made)
	b.forgive() // the browser's own word on that
}

func requireNoSideways(t *testing.T, b *tab) {
	t.Helper()
	require.Equal(t, "390", b.text(`window.innerWidth`))
	require.Equal(t, "390", b.text(`document.documentElement.scrollWidth`), "it scrolls sideways")
}

func TestANarrowScreenDoesNotScrollSideways(t *testing.T) {
	host := newHost(t, jobs.Config{})
	ann := newChild(t, host, strings.Repeat("owner", 20))
	p := newPuppet(t, ann, strings.Repeat("tool", 25))
	b := open(t, serve(t, host, brisk), 390)
	p.say(strings.Repeat("word", 500) + "\n")
	b.until(`document.getElementById("tail").textContent.length > 2000`)
	requireNoSideways(t, b)
	require.Equal(t, "true", b.text(`[...document.querySelectorAll("button")].every(b => {
		const r = b.getBoundingClientRect();
		return r.left >= 0 && r.right <= 390;
	})`), "every button is in sight")
}

func TestTheKeyboardReachesCancel(t *testing.T) {
	host := newHost(t, jobs.Config{})
	p := newPuppet(t, host, "build")
	b := open(t, serve(t, host, brisk), 1200)
	b.until(`document.querySelector(".cancel") !== null`)
	for tabs := 0; b.text(`document.activeElement.ariaLabel`) != "Cancel build"; tabs++ {
		require.Less(t, tabs, 10, "Tab does not get there")
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	require.Equal(t, "solid", b.text(`getComputedStyle(document.activeElement).outlineStyle`), "the focus is not to be seen")
	p.say("more\n") // what comes in must not take the focus away
	b.until(`document.getElementById("tail").textContent === "more\n"`)
	newPuppet(t, host, "test")
	b.until(`document.querySelectorAll(".job").length === 2`)
	require.Equal(t, "Cancel build", b.text(`document.activeElement.ariaLabel`))

	b.run(chromedp.KeyEvent(kb.Enter))
	require.Equal(t, jobs.Cancelled, ended(t, host, p.ID).State)
	b.until(`document.querySelector(".cancel").hidden`)
	require.Equal(t, "build", b.text(`document.activeElement.textContent`), "the focus is lost")
}

func TestTheTimelineHasABarForEachJob(t *testing.T) {
	host := newHost(t, jobs.Config{})
	newPuppet(t, host, "build")
	done := newPuppet(t, host, "test")
	b := open(t, serve(t, host, brisk), 390)
	b.until(`document.querySelectorAll("#chart .bar").length === 2`)
	require.Equal(t, "0", b.text(`document.querySelectorAll("#chart .end").length`))
	done.end()
	b.until(`document.querySelectorAll("#chart .completed .end").length === 1`)
	b.until(`document.getElementById("chart").ariaLabel === "Timeline of 2 jobs: 1 running, 1 ended"`)
}

func TestDarkDiffersFromLightAndBothCanBeRead(t *testing.T) {
	host := newHost(t, jobs.Config{})
	newPuppet(t, host, "build")
	b := open(t, serve(t, host, brisk), 1200)
	b.until(`document.querySelector(".running") !== null`)
	pages := map[string]string{}
	for _, name := range []string{"light", "dark"} {
		b.run(scheme(name))
		pages[name] = b.text(`getComputedStyle(document.body).backgroundColor`)
		for _, place := range []string{"body", ".pick", ".outcome", ".elapsed", "#about", "#tail"} {
			ink := colour(t, b.text(`getComputedStyle(document.querySelector("`+place+`")).color`))
			for _, ground := range []string{"body", "#detail", ".job.picked"} {
				paper := colour(t, b.text(`getComputedStyle(document.querySelector("`+ground+`")).backgroundColor`))
				require.Greater(t, contrast(ink, paper), 4.5, "%s on %s, %s", place, ground, name)
			}
		}
	}
	require.NotEqual(t, pages["light"], pages["dark"])
}

func TestABrowserSignsInWithTheToken(t *testing.T) {
	host := newHost(t, jobs.Config{})
	newPuppet(t, host, "build")
	b := open(t, serve(t, host, dashboard.Options{Token: "secret", Refresh: brisk.Refresh}), 390)
	b.until(`document.activeElement.id === "token"`)
	requireNoSideways(t, b)
	b.run(chromedp.KeyEvent("guess" + kb.Enter))
	b.until(`document.getElementById("wrong") !== null`)
	b.until(`document.activeElement.id === "token"`)
	b.forgive() // each refusal is a trouble to the browser
	b.run(chromedp.KeyEvent("secret" + kb.Enter))
	b.until(`document.querySelector(".cancel") !== null`)
	require.Empty(t, b.text("document.cookie"), "scripts see the cookie")
	b.click(".cancel")
	b.until(`document.querySelector(".outcome").innerText.includes("cancelled")`)
}

func TestAPageThatIsClosedEndsItsStream(t *testing.T) {
	host := newHost(t, jobs.Config{})
	p := newPuppet(t, host, "build")
	b := open(t, serve(t, host, brisk), 1200)
	b.until(fmt.Sprintf(`document.querySelector('[data-id="%s"].picked') !== null`, p.ID))
	until(t, "there is one stream", func() bool { return streams() == 1 })
	b.run(chromedp.Navigate("about:blank"))
	until(t, "there is none", func() bool { return streams() == 0 })
	b.mu.Lock()
	b.requests = b.requests[:len(b.requests)-1]
	b.mu.Unlock()
}
