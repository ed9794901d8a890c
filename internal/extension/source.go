package extension

import "fmt"

// Source is something that resources read from and that may fail while everything else goes on. A source that is in
// trouble shows in /readyz?verbose, which it does not fail, and as extserver_source_up 0.
type Source struct {
	// Name is what people call it; it is a metric label, so there must be few.
	Name string
	// Trouble is what is wrong, nil when it is well. It must answer at once, from what is known.
	Trouble func() error
}

// line is the source as a verbose answer shows it. Trouble is marked, but not as a check that failed.
func (s Source) line() string {
	if err := s.Trouble(); err != nil {
		return fmt.Sprintf("[!]source %s: %s\n", s.Name, plainLine(err.Error()))
	}
	return fmt.Sprintf("[+]source %s ok\n", s.Name)
}

func sourcesUp(sources []Source) map[string]bool {
	up := make(map[string]bool, len(sources))
	for _, s := range sources {
		up[s.Name] = s.Trouble() == nil
	}
	return up
}
