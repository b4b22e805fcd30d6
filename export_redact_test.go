package jobs

// Redact returns a command line as records hold it.
func Redact(argv []string) string { return redact(argv) }
