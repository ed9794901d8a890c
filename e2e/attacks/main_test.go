package attacks

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	bench "portico.dev/e2e/bench/environment"
)

var (
	whole   = flag.Bool("whole", false, "all attacks on every engine, as long as the record needs; default a reduced set")
	write   = flag.Bool("write", false, "with -whole: write docs/attacks.md and docs/attacks.json")
	judge   = flag.Bool("judge", false, "hold the figures of the page against the bounds as they are now, attack nobody, and write the page")
	engines = flag.String("engines", "", "which engines, separated by commas; default portico, and library for a handful")
	only    = flag.String("only", "", "a regular expression: only attacks whose names match")
	side    = flag.String("side", "", "server or client: only attacks on that side")
	lasts   = flag.Duration("lasts", 0, "how long each attack lasts; default 2.5s with -whole and 700ms without")
	program = flag.String("aggregator", "", "attack this program; default one built from the tree")
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
