package compare

import (
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/e2e/packed"
)

// page returns the page of a machine, with a row of Portico and one of another server.
func page(machine, figures string) string {
	return `{"machine":{"processor":"` + machine + `","cores":2,"memoryGiB":"4"},"settings":{"cpuUS":5},"requests":[
		{"operation":"GET","http2":true,"clients":1,"server":"front door"` + figures + `},
		{"operation":"GET","http2":true,"clients":1,"server":"nginx","serverCPUus":{"median":1,"min":1,"max":1}}]}`
}

func compared(t *testing.T, was, is string) (Result, error) {
	t.Helper()
	record, fresh := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{record: was, fresh: is} {
		if err := packed.Write(filepath.Join(dir, "page.json"+packed.Suffix), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return Directories(record, fresh)
}

func TestWhatIsWorseByMoreThanItsNoise(t *testing.T) {
	const record = `,"serverCPUus":{"median":100,"min":90,"max":110},"requestsPerSecond":{"median":1000,"min":900,"max":1100},"cpuToBare":{"median":1,"min":0.9,"max":1.1},"heapKept":100,"requests":5`
	for name, c := range map[string]struct {
		now   string
		worse string // the figure that is worse; "" for none
	}{
		"the same":                         {record, ""},
		"within its noise":                 {`,"serverCPUus":{"median":110,"min":105,"max":140}`, ""},
		"by less than 5 %":                 {`,"serverCPUus":{"median":115,"min":111,"max":140}`, ""},
		"by more":                          {`,"serverCPUus":{"median":116,"min":111,"max":140}`, "serverCPUus: 116, was 100 (at worst 110)"},
		"by more, but noisy":               {`,"serverCPUus":{"median":116,"min":99,"max":140}`, ""},
		"better":                           {`,"serverCPUus":{"median":50,"min":40,"max":60}`, ""},
		"fewer requests":                   {`,"requestsPerSecond":{"median":850,"min":800,"max":950}`, "requestsPerSecond: 850, was 1000 (at worst 900)"},
		"fewer within the noise":           {`,"requestsPerSecond":{"median":860,"min":800,"max":950}`, ""},
		"more requests":                    {`,"requestsPerSecond":{"median":2000,"min":1900,"max":2100}`, ""},
		"a ratio":                          {`,"cpuToBare":{"median":1.2,"min":1.15,"max":1.3}`, "cpuToBare: 1.2, was 1 (at worst 1.1)"},
		"measured once, a little more":     {`,"heapKept":120`, ""},
		"measured once, much more":         {`,"heapKept":130`, "heapKept: 130, was 100"},
		"what is no figure":                {`,"requests":50,"heapKept":1`, ""},
		"a figure that the record has not": {`,"p99ms":{"median":1,"min":1,"max":1},"heapKept":1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compared(t, page("x", record), page("x", c.now))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.worse == "" && len(got.Worse) != 0:
				t.Errorf("worse figures = %v, want none", got.Worse)
			case c.worse != "" && (len(got.Worse) != 1 || !strings.HasPrefix(got.Worse[0].String(), "page: requests [1 clients, http2=true, GET, front door] "+c.worse)):
				t.Errorf("worse figures = %v, want %s", got.Worse, c.worse)
			}
		})
	}
	t.Run("another machine", func(t *testing.T) {
		got, err := compared(t, page("x", record), page("y", strings.ReplaceAll(record, `"median":100,"min":90,"max":110`, `"median":300,"min":290,"max":310`)))
		if err != nil || len(got.Worse) != 0 || got.Figures != 1 || len(got.OtherMachine) != 1 {
			t.Errorf("comparison of two machines = %+v, %v; want 1 figure, nothing worse and 1 page of another machine", got, err)
		}
	})
	t.Run("nothing in common", func(t *testing.T) {
		if _, err := compared(t, page("x", record), `{}`); err == nil {
			t.Error("comparison of pages without common figures returned no error, want one")
		}
		if _, err := Directories(t.TempDir(), t.TempDir()); err == nil {
			t.Error("comparison of empty directories returned no error, want one")
		}
	})
}

// The record's pages have figures with known names.
func TestEveryPageOfTheRecordHasFigures(t *testing.T) {
	record := filepath.Join("..", "results")
	for _, name := range []string{"proxied", "scale", "local", "shared", "gateway", "incumbent", "memory"} {
		was, err := read(filepath.Join(record, name+".json"+packed.Suffix))
		if err != nil {
			t.Fatal(err)
		}
		var r Result
		r.page(name, was, was)
		if r.Figures < 10 || len(r.Worse) != 0 {
			t.Errorf("%s: %d figures, worse than itself: %v; want at least 10 and none", name, r.Figures, r.Worse)
		}
	}
}
