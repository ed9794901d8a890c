package attacks

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	bench "portico.dev/e2e/environment"
)

var (
	whole   = flag.Bool("whole", false, "all attacks on all engines, for the duration of the recorded results; default a reduced set")
	write   = flag.Bool("write", false, "with -whole: write e2e/attacks/README.md and e2e/attacks/results.json.zst")
	judge   = flag.Bool("judge", false, "check the recorded results against the current bounds without attacks, and write the page")
	engines = flag.String("engines", "", "engines, separated by commas; default portico, and library for a few attacks")
	only    = flag.String("only", "", "regular expression; only attacks with a matching name")
	side    = flag.String("side", "", "server or client: only attacks on that side")
	lasts   = flag.Duration("lasts", 0, "duration of each attack; default 2.5s with -whole and 700ms without")
	program = flag.String("aggregator", "", "attacked program; default one built from the tree")
)

func TestMain(m *testing.M) {
	played, err := bench.Play(map[string]func() error{attackerRole: attack})
	if played {
		if err != nil {
			fmt.Fprintln(os.Stderr, "attacker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func duration() time.Duration {
	switch {
	case *lasts > 0:
		return *lasts
	case *whole:
		return 2500 * time.Millisecond
	}
	return 700 * time.Millisecond
}
