package jobs_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// A verb is something that can be asked of a supervisor about a job. call puts
// the answer in a few words.
type verb struct {
	name string
	call func(ctx context.Context, s *jobs.Supervisor, id string) (answer string, err error)
}

// idVerbs are the verbs that fail for an id that is none of the supervisor's.
var idVerbs = []verb{
	{"Check", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		snap, err := s.Check(id)
		return snap.Outcome(), err
	}},
	{"Output", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		c, err := s.Output(id, 0, 0)
		return string(c.Data), err
	}},
	{"ReadOutput", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		c, err := s.ReadOutput(id, 0, make([]byte, 100))
		return string(c.Data), err
	}},
	{"Stderr", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		c, err := s.Stderr(id, 0, 0)
		return fmt.Sprintf("%d bytes", len(c.Data)), err
	}},
	{"Collect", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Collect(ctx, id)
		return r.Outcome(), err
	}},
	{"Cancel", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Cancel(ctx, id)
		return r.Outcome(), err
	}},
	{"Wait", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}})
		return outcomes(r.Jobs), err
	}},
	{"Watch", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile(".")})
		return "", err
	}},
	{"Input", func(_ context.Context, s *jobs.Supervisor, id string) (string, error) {
		_, err := s.Input(id)
		return "", err
	}},
}

// otherVerbs are those that take no id, or pass over one that is wrong.
var otherVerbs = []verb{
	{"Start", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		snap, err := s.Start(ctx, keyed(gated(nil, ""), stageKey))
		return unless(snap.ID == id, snap.Outcome()), err
	}},
	{"Run", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Run(ctx, keyed(gated(nil, ""), stageKey), 0)
		return unless(r.ID == id, r.Outcome()), err
	}},
	{"Reap", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		return outcomes(s.Reap(ctx, id)), nil
	}},
	{"TurnEnd", func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		return string(s.TurnEndOf(ctx, id).Action), nil
	}},
	{"SetPending", func(_ context.Context, s *jobs.Supervisor, _ string) (string, error) {
		s.SetPending("somebody asks")
		return "", nil
	}},
	{"List", func(_ context.Context, s *jobs.Supervisor, _ string) (string, error) {
		return outcomes(s.List().Jobs), nil
	}},
	{"Drain", func(_ context.Context, s *jobs.Supervisor, _ string) (string, error) {
		return fmt.Sprintf("%d notices", len(s.Drain())), nil
	}},
	{"Deliver", func(ctx context.Context, s *jobs.Supervisor, _ string) (string, error) {
		err := s.Deliver(doneContext(), func(context.Context, []jobs.Notice) error { panic("a notice") })
		return "", err
	}},
	{"Child", func(_ context.Context, s *jobs.Supervisor, _ string) (string, error) {
		c, err := s.Child(jobs.ChildConfig{Name: "child"})
		return unless(c == nil, "a child"), err
	}},
	{"Close", func(ctx context.Context, s *jobs.Supervisor, _ string) (string, error) {
		report, err := s.Close(ctx)
		return fmt.Sprintf("%d uncollected", len(report.Uncollected)), err
	}},
}

// toolVerbs are the tools, called with an id where they take one.
var toolVerbs = []verb{
	toolVerb("job__start", `{"tool":"build"}`),
	toolVerb("job__check", `{"id":"$"}`),
	toolVerb("job__collect", `{"id":"$"}`),
	toolVerb("job__cancel", `{"id":"$"}`),
	toolVerb("job__list", `{}`),
	toolVerb("job__wait", `{"ids":"$"}`),
	toolVerb("job__output", `{"id":"$"}`),
	toolVerb("job__write", `{"id":"$","text":"x"}`),
}

// toolVerb calls a tool with args, in which "$" stands for the id.
func toolVerb(name, args string) verb {
	return verb{name, func(ctx context.Context, s *jobs.Supervisor, id string) (string, error) {
		tools := s.Toolset(jobs.ToolsetOptions{
			Declared: []string{"build"},
			Optional: jobs.WaitTool | jobs.OutputTool | jobs.WriteTool,
			Resolve: func(context.Context, string, json.RawMessage) (jobs.Spec, error) {
				return gated(nil, ""), nil
			},
		})
		args := strings.ReplaceAll(args, "$", id)
		out, isError := tools.Call(ctx, name, json.RawMessage(args))
		r, fault := readReply(args, out, isError)
		if fault != "" {
			return "", errors.New(fault)
		}
		return r.Status + ": " + r.Message, nil
	}}
}

func keyed(spec jobs.Spec, key string) jobs.Spec {
	spec.Key = key
	return spec
}

// unless returns text, or what says that it must not be.
func unless(wrong bool, text string) string {
	if wrong {
		return "not " + text
	}
	return text
}

// outcomes says how jobs stand, in their order.
func outcomes(snaps []jobs.Snapshot) string {
	var texts []string
	for _, snap := range snaps {
		texts = append(texts, snap.Outcome())
	}
	return strings.Join(texts, "; ")
}

// nameOf names the sentinel that err is, the narrowest first.
func nameOf(err error) string {
	for _, e := range []struct {
		name string
		err  error
	}{
		{"ErrForeign", jobs.ErrForeign},
		{"ErrNotFound", jobs.ErrNotFound},
		{"ErrExpired", jobs.ErrExpired},
		{"ErrCollected", jobs.ErrCollected},
		{"ErrEnded", jobs.ErrEnded},
		{"ErrNoInput", jobs.ErrNoInput},
		{"ErrPending", jobs.ErrPending},
		{"ErrAtCapacity", jobs.ErrAtCapacity},
		{"ErrClosed", jobs.ErrClosed},
		{"ErrDisabled", jobs.ErrDisabled},
	} {
		if errors.Is(err, e.err) {
			return e.name
		}
	}
	return err.Error()
}

// stageKey is the Spec.Key of every job on a wrongStage.
const stageKey = "key"

// A wrongStage is a supervisor with something wrong to ask it about.
type wrongStage struct {
	s, sibling *jobs.Supervisor
	id         string // that is wrong
	known      []string
}

// wrongThings are what can be wrong, each with how to set it up.
var wrongThings = []struct {
	name  string
	setUp func(testing.TB, *wrongStage)
}{
	{"malformed", func(_ testing.TB, st *wrongStage) { st.id = "../etc/passwd" }},
	{"unknown", func(_ testing.TB, st *wrongStage) { st.id = unknownTo(st.s) }},
	{"foreign", func(t testing.TB, st *wrongStage) {
		st.id = startForeign(t, st.sibling, keyed(gated(nil, ""), stageKey), st.s)
	}},
	{"expired", func(t testing.TB, st *wrongStage) {
		st.id = st.end(t)
		require.Len(t, st.s.Reap(testContext(t), st.id), 1)
	}},
	{"collected", func(t testing.TB, st *wrongStage) { st.id = st.end(t); collect(t, st.s, st.id) }},
	{"finished", func(t testing.TB, st *wrongStage) { st.id = st.end(t); st.s.Drain() }},
	{"closed", func(t testing.TB, st *wrongStage) {
		st.id = st.end(t)
		_, err := st.s.Close(testContext(t))
		require.NoError(t, err)
	}},
	{"disabled", func(t testing.TB, st *wrongStage) {
		var err error
		st.s, err = st.s.Child(jobs.ChildConfig{Disabled: true})
		require.NoError(t, err)
		st.id = unknownTo(st.s)
	}},
}

func newWrongStage(t testing.TB, setUp func(testing.TB, *wrongStage)) *wrongStage {
	t.Helper()
	top := newSupervisor(t, jobs.Config{MaxRunning: 10})
	st := &wrongStage{s: newChild(t, top, jobs.ChildConfig{}), sibling: newChild(t, top, jobs.ChildConfig{})}
	st.known = []string{start(t, st.sibling, gated(nil, "")).ID}
	setUp(t, st)
	st.known = append(st.known, st.id)
	return st
}

// end runs a job to its end, which nobody is told.
func (st *wrongStage) end(t testing.TB) string {
	id := start(t, st.s, keyed(function(prints("printed")), stageKey)).ID
	awaitEnd(t, st.s, id)
	return id
}

// state is all that can be seen of both supervisors, without what only time
// changes.
func (st *wrongStage) state() string {
	var b strings.Builder
	for _, s := range []*jobs.Supervisor{st.s, st.sibling} {
		l := s.List()
		fmt.Fprintln(&b, ids(l.Jobs), outcomes(l.Jobs), l.Running, len(s.Ready()), len(s.Children()))
		for _, id := range st.known {
			snap, err := s.Check(id)
			fmt.Fprintln(&b, snap.Outcome(), snap.Collected, snap.OutputTotal, err)
		}
	}
	return b.String()
}

func TestEveryVerbHasItsAnswerToEveryWrongThing(t *testing.T) {
	const (
		noID      = "error: is not a job id"
		noJob     = "error: There is no job"
		foreign   = "error: is no job of yours"
		expired   = "error: no longer remembered"
		collected = "error: handed out before"
		off       = "error: switched off"
	)
	type row struct {
		verb verb
		// One for each of wrongThings. That of a tool is its status and a piece
		// of its message. A star says that the call does what it is for, so that
		// something changes.
		want [8]string
	}
	var rows []row
	add := func(verbs []verb, wants [][8]string) {
		require.Equal(t, len(verbs), len(wants))
		for i, v := range verbs {
			rows = append(rows, row{v, wants[i]})
		}
	}
	//         malformed      unknown        foreign       expired       collected       finished     closed       disabled
	add(idVerbs, [][8]string{
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "completed", "completed", "completed", "ErrNotFound"},      // Check
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrCollected", "printed", "printed", "ErrNotFound"},       // Output
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrCollected", "printed", "printed", "ErrNotFound"},       // ReadOutput
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrCollected", "0 bytes", "0 bytes", "ErrNotFound"},       // Stderr
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrCollected", "completed*", "completed*", "ErrNotFound"}, // Collect
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrCollected", "completed", "completed", "ErrNotFound"},   // Cancel
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "completed", "completed", "completed", "ErrNotFound"},      // Wait
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrEnded", "ErrEnded", "ErrEnded", "ErrNotFound"},         // Watch
		{"ErrNotFound", "ErrNotFound", "ErrForeign", "ErrExpired", "ErrNoInput", "ErrNoInput", "ErrNoInput", "ErrNotFound"},   // Input
	})
	add(otherVerbs, [][8]string{
		{"running*", "running*", "running*", "running*", "running*", "running*", "ErrClosed", "ErrDisabled"},     // Start
		{"running*", "running*", "running*", "running*", "running*", "running*", "ErrClosed", "ErrDisabled"},     // Run
		{"", "", "", "", "", "completed*", "completed*", ""},                                                     // Reap
		{"", "", "", "", "", "inject", "inject", ""},                                                             // TurnEnd
		{"", "", "", "", "", "", "", ""},                                                                         // SetPending
		{"", "", "", "", "", "completed", "completed", ""},                                                       // List
		{"0 notices", "0 notices", "0 notices", "0 notices", "0 notices", "0 notices", "0 notices", "0 notices"}, // Drain
		{"context canceled", "context canceled", "context canceled", "context canceled", "context canceled", "context canceled", "context canceled", "context canceled"}, // Deliver
		{"a child*", "a child*", "a child*", "a child*", "a child*", "a child*", "ErrClosed", "a child*"},                                                                // Child
		{"0 uncollected", "0 uncollected", "0 uncollected", "0 uncollected", "0 uncollected", "1 uncollected", "1 uncollected", "0 uncollected"},                         // Close
	})
	add(toolVerbs, [][8]string{
		{"ok: Started*", "ok: Started*", "ok: Started*", "ok: Started*", "ok: Started*", "ok: Started*", "error: session is ending", off},              // job__start
		{noID, noJob, foreign, expired, "completed: handed out before", "completed: job__collect hands out", "completed: job__collect hands out", off}, // job__check
		{noID, noJob, foreign, expired, collected, "completed: *", "completed: *", off},                                                                // job__collect
		{noID, noJob, foreign, expired, collected, "completed: nothing more was stopped", "completed: nothing more was stopped", off},                  // job__cancel
		{"ok: ", "ok: ", "ok: ", "ok: ", "ok: ", "ok: ", "ok: ", off},                                                                                  // job__list
		{noID, noJob, foreign, expired, "ok: 1 of 1 have ended", "ok: 1 of 1 have ended", "ok: 1 of 1 have ended", off},                                // job__wait
		{noID, noJob, foreign, expired, collected, "completed: That was the end", "completed: That was the end", off},                                  // job__output
		{noID, noJob, foreign, expired, "error: without input", "error: without input", "error: without input", off},                                   // job__write
	})
	for _, row := range rows {
		for i, wrong := range wrongThings {
			t.Run(row.verb.name+"/"+wrong.name, func(t *testing.T) {
				st := newWrongStage(t, wrong.setUp)
				before := st.state()
				answer, err := row.verb.call(testContext(t), st.s, st.id)
				if err != nil {
					answer = nameOf(err)
				}
				want, changes := strings.CutSuffix(row.want[i], "*")
				if status, piece, isTool := strings.Cut(want, ": "); isTool {
					require.True(t, strings.HasPrefix(answer, status+": "), answer)
					require.Contains(t, answer, piece)
				} else {
					require.Equal(t, want, answer)
				}
				if changes {
					require.NotEqual(t, before, st.state())
				} else {
					require.Equal(t, before, st.state())
				}
			})
		}
	}
}

// unknownTo returns an id that was made up. One in 4,096 passes for another
// owner's, and is not it.
func unknownTo(s *jobs.Supervisor) string {
	for {
		id := forge()
		if _, err := s.Check(id); !errors.Is(err, jobs.ErrForeign) {
			return id
		}
	}
}

// forge returns a well-formed id that was made up.
func forge() string {
	var b [10]byte
	rand.Read(b[:])
	return "job_" + hex.EncodeToString(b[:])
}

func TestAnIDIsOnesOwnForeignExpiredOrMadeUp(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	elsewhere := newSupervisor(t, jobs.Config{})
	s := family["a"]
	own := finish(t, s)
	gone := finish(t, s)
	s.Reap(testContext(t), gone)
	theirs := startForeign(t, family["a/a"], gated(nil, ""), s)
	for name, c := range map[string]struct {
		id   string
		want string
		text string
	}{
		"own":               {own, "", ""},
		"expired":           {gone, "ErrExpired", "jobs: job ended and is no longer remembered: %q"},
		"another owner's":   {theirs, "ErrForeign", "jobs: no such job of this owner: %q"},
		"made up":           {noJob, "ErrNotFound", "jobs: no such job: %q"},
		"of no form of one": {"agent_1", "ErrNotFound", "jobs: no such job: %q"},
	} {
		_, err := s.Check(c.id)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, c.want, nameOf(err), name)
		require.EqualError(t, err, fmt.Sprintf(c.text, c.id))
		require.Nil(t, requireJobError(t, err, errors.Unwrap(err), c.id).Job)
	}
	// One of another tree is like made up, save one in 4,096.
	require.True(t, eventually(func() bool {
		_, err := s.Check(finish(t, elsewhere))
		return nameOf(err) == "ErrNotFound"
	}))
}

func TestAForgedIDFindsNoJob(t *testing.T) {
	const tries = 20_000
	family := newFamily(t, jobs.Config{})
	s := family["a"]
	for _, owner := range family {
		start(t, owner, gated(nil, ""))
		finish(t, owner)
	}
	answers := map[string]int{}
	for range tries {
		id := forge()
		_, err := s.Check(id)
		require.Nil(t, requireJobError(t, err, errors.Unwrap(err), id).Job)
		answers[nameOf(err)]++
	}
	// The tag of the tree fits one in 4,096, both tags one in 16 million.
	require.Greater(t, answers["ErrNotFound"], tries*99/100)
	require.LessOrEqual(t, answers["ErrExpired"], 2)
	require.Equal(t, tries, answers["ErrNotFound"]+answers["ErrForeign"]+answers["ErrExpired"])
}

// Changing one digit of an id that was given out makes it no other owner's.
func TestAnIDWithADigitChangedIsMadeUp(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := finish(t, s)
	wrong := 0
	for i := range []byte(id)[len("job_"):] {
		changed := []byte(id)
		at := len("job_") + i
		changed[at] = "0123456789abcdef"[(strings.IndexByte("0123456789abcdef", changed[at])+1)%16]
		_, err := s.Check(string(changed))
		require.Error(t, err)
		if nameOf(err) != "ErrNotFound" {
			wrong++
		}
	}
	require.LessOrEqual(t, wrong, 3+2, "the owner's tag has three digits; chance has a few more")
}

func TestAnotherOwnersIDsAreForeignAndNeverFindAJob(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	answers := map[string]int{}
	for range 2000 {
		r, err := family["b"].Run(testContext(t), returning(1), jobs.NoDetach)
		require.NoError(t, err)
		for _, name := range []string{"", "a", "a/a"} {
			_, err := family[name].Check(r.ID)
			require.Nil(t, requireJobError(t, err, errors.Unwrap(err), r.ID).Job)
			answers[nameOf(err)]++
		}
	}
	require.Zero(t, answers["ErrNotFound"])
	require.Less(t, answers["ErrExpired"], 20, "one in 4,096 has the other's tag too")
}

func TestAnExpiredIDStaysExpired(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 1})
	var expired []string
	for range 10 {
		expired = append(expired, finish(t, s))
	}
	reaped, reset := finish(t, s), finish(t, s)
	s.Reap(testContext(t), reaped)
	s.Reset(testContext(t))
	expired = append(expired, reaped, reset)
	for range 10_000 {
		r, err := s.Run(context.Background(), returning(1), jobs.NoDetach)
		require.NoError(t, err)
		if len(expired) < 100 {
			expired = append(expired, r.ID)
		}
	}
	requireKnown(t, s, nil, expired)
	mustClose(t, s)
	requireKnown(t, s, nil, expired)
}
