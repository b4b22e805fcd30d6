package dashboard_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chromium is the one browser of all tests; each has a tab of its own.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
	stop func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

func launch() {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		chromium.err = fmt.Errorf("no chromium in PATH: install it, on Debian with apt-get install chromium")
		return
	}
	dir, err := os.MkdirTemp("", "dashboard-chromium-")
	if err != nil {
		chromium.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(dir),
		chromedp.Flag("headless", "new"),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx = ctx
	chromium.stop = func() {
		_ = chromedp.Cancel(ctx) // asks it to close, and waits until it has
		cancel()
		end()
		chromedp.FromContext(ctx).Allocator.Wait()
		_ = os.RemoveAll(dir)
	}
	chromium.err = chromedp.Do(ctx)
}

// A tab is a page in a real browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	troubles []string // what the browser complained of
}

// open loads the dashboard in a tab of the given width.
func open(t *testing.T, srv *httptest.Server, width int64) *tab {
	t.Helper()
	chromium.once.Do(launch)
	require.NoError(t, chromium.err)
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx)) // makes the tab, which ends with this context
	ctx, cancel = context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.note))
	b.run(
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
			return err
		}),
		chromedp.EmulateViewport(width, 800),
		chromedp.Navigate(srv.URL),
	)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.troubles)
		for _, url := range b.requests {
			require.True(t, strings.HasPrefix(url, srv.URL+"/"), "a request to another place: %s", url)
		}
	})
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.troubles = append(b.troubles, e.Entry.Text)
		}
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)))
}

// until waits for an expression to be true. The library's own way to wait makes
// a function out of text in the page, which the policy of this one forbids.
func (b *tab) until(expression string) {
	b.t.Helper()
	until(b.t, expression, func() bool {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return err == nil && is // a page that is being left has no answer
	})
}

func (b *tab) text(expression string) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	require.NoError(b.t, err)
	return s
}

// scheme makes the browser prefer dark or light.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// forgive forgets what the browser complained of.
func (b *tab) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = nil
}
