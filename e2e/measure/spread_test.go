package measure

import (
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   string
	}{
		"nothing":              {nil, ""},
		"one":                  {[]float64{98.4}, "98.4 (98.4..98.4)"},
		"odd, out of order":    {[]float64{3, 1, 2}, "2.00 (1.00..3.00)"},
		"even":                 {[]float64{1, 2, 3, 10}, "2.50 (1.00..10.0)"},
		"large ones are round": {[]float64{12345.6}, "12346 (12346..12346)"},
		"small ones keep some": {[]float64{0.01234}, "0.012 (0.012..0.012)"},
	} {
		if got := SpreadOf(c.values).String(); got != c.want {
			t.Errorf("SpreadOf with %s = %q, want %q", name, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(i))
	}
	if got := Quantile(all, 0.99); got != 99 {
		t.Errorf("Quantile(0..99, 0.99) = %d, want 99", got)
	}
	if got := Quantile(all, 0.5); got != 50 {
		t.Errorf("Quantile(0..99, 0.5) = %d, want 50", got)
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("Quantile(nil, 0.5) = %d, want 0", got)
	}
}

func TestAProcessIsMeasuredWhileItWorks(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		if runtime.GOOS != "linux" {
			return
		}
		t.Fatal(err)
	}
	sum := 0
	for i := range 50_000_000 {
		sum += i * i
	}
	after, err := CPU(os.Getpid())
	if err != nil || after-before < time.Millisecond || after-before > time.Minute {
		t.Errorf("%d additions took %s of CPU, %v (%d); want between 1 ms and 1 min", 50_000_000, after-before, err, sum)
	}
	if size, err := RSS(os.Getpid()); err != nil || size < 1<<20 || size > 1<<40 {
		t.Errorf("RSS of this process = %d, %v; want between 1 MiB and 1 TiB", size, err)
	}
}

// Missing resources of a machine are reported before a process is started.
func TestWhatTheMachineCannotGiveIsRefused(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	if err := errors.Join(CheckDescriptors(3), CheckMemory(1)); err != nil {
		t.Error(err)
	}
	if CheckDescriptors(math.MaxInt) == nil || CheckMemory(1<<60) == nil {
		t.Error("CheckDescriptors or CheckMemory accepts a request without bounds, want errors")
	}
}
