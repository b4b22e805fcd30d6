package jobs

import "strconv"

// A Signal is the number of a signal on the platform of the job.
type Signal int

// String returns the name of the signal, such as "SIGKILL", and "" for 0.
func (s Signal) String() string {
	if s == 0 {
		return ""
	}
	if name := signalName(int(s)); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}
