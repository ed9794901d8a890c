package resident

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLeastLimitOfTheGroupsAroundCounts(t *testing.T) {
	root := t.TempDir()
	for group, limit := range map[string]string{
		"": "", "pods": "300\n", "pods/one": "max\n", "pods/one/front": "400\n", "pods/two": "200\n", "free": "max\n",
	} {
		dir := filepath.Join(root, group)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if limit == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(limit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		mine string
		want uint64
	}{
		"a group with a limit in one with less": {"0::/pods/one/front\n", 300},
		"a group with less":                     {"0::/pods/two\n", 200},
		"no limit":                              {"0::/free\n", math.MaxInt64},
		"the outermost":                         {"0::/\n", math.MaxInt64},
		"version 1 beside it":                   {"4:memory:/pods/one\n0::/pods/two\n", 200},
		"version 1 alone":                       {"4:memory:/pods/two\n", math.MaxInt64},
		"a group that is hidden":                {"0::/pods/gone/away\n", 300},
		"nothing":                               {"", math.MaxInt64},
	} {
		if got := allowed(root, c.mine); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := memory(); got < 1<<20 || got > math.MaxInt64 {
		t.Errorf("this machine has %d bytes", got)
	}
}
