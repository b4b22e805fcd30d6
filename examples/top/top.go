// Package top shows the jobs of a supervisor, and of all owners below it, in a
// terminal: their states, and a live tail of the one that is picked.
//
// Looking changes nothing: no result is collected and no notice is taken, and a
// job that is cancelled here is still told to its owner.
package top

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/agentjobs/jobs"
)

// refresh is how often the screen is brought up to date.
const refresh = 250 * time.Millisecond

// Run shows the jobs of s and of its children until q is pressed or ctx is done.
// It leaves s open.
func Run(ctx context.Context, s *jobs.Supervisor) error {
	m := &model{board: newBoard(s), now: time.Now()}
	m.look()
	// Signals are the caller's: it has jobs to end.
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// A model is what is on the screen.
type model struct {
	board         *board
	width, height int
	now           time.Time

	rows   []row
	picked int // in rows
	tail   string
	said   string // what became of the last key
}

// A tick is the time to look again.
type tick time.Time

func wait() tea.Cmd {
	return tea.Tick(refresh, func(t time.Time) tea.Msg { return tick(t) })
}

func (m *model) Init() tea.Cmd { return wait() }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tick:
		m.look()
		return m, wait()
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	}
	return m, nil
}

func (m *model) press(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "up", "k":
		m.pick(m.picked - 1)
	case "down", "j":
		m.pick(m.picked + 1)
	case "home", "g":
		m.pick(0)
	case "end", "G":
		m.pick(len(m.rows) - 1)
	case "c":
		if len(m.rows) > 0 {
			r := m.rows[m.picked]
			m.said = cancel(r)
			m.look()
		}
	}
	return nil
}

func (m *model) pick(i int) {
	m.said = ""
	m.picked = max(0, min(i, len(m.rows)-1))
	m.follow()
}

// look brings the rows up to date; what was picked stays so wherever its row
// goes.
func (m *model) look() {
	m.now = time.Now()
	var id string
	if m.picked < len(m.rows) {
		id = m.rows[m.picked].snap.ID
	}
	m.rows = m.board.look()
	for i, r := range m.rows {
		if r.snap.ID == id {
			m.picked = i
		}
	}
	m.picked = max(0, min(m.picked, len(m.rows)-1))
	m.follow()
}

func (m *model) follow() {
	m.tail = ""
	if m.picked < len(m.rows) {
		m.tail = tail(m.rows[m.picked])
	}
}

func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	return v
}
