package memory

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLowestLimitOfAncestorCgroupsApplies(t *testing.T) {
	root := t.TempDir()
	const unlimited = "9223372036854771712\n"
	write(t, root, map[string]string{
		"pods/memory.max": "300\n", "pods/one/memory.max": "max\n", "pods/one/front/memory.max": "400\n",
		"pods/two/memory.max": "200\n", "free/memory.max": "max\n",
		"memory/memory.limit_in_bytes": unlimited, "memory/pods/memory.limit_in_bytes": "700\n",
		"memory/pods/one/memory.limit_in_bytes": unlimited, "memory/pods/two/memory.limit_in_bytes": "100\n",
		"memory/free/memory.limit_in_bytes": unlimited,
	})
	for name, c := range map[string]struct {
		mine string
		want uint64 // 0: none
	}{
		"a group with a limit in one with less":              {"0::/pods/one/front\n", 300},
		"a group with less":                                  {"0::/pods/two\n", 200},
		"no limit":                                           {"0::/free\n", 0},
		"the outermost":                                      {"0::/\n", 0},
		"a group that is hidden":                             {"0::/pods/gone/away\n", 300},
		"version 1":                                          {"9:cpu:/pods/one\n4:memory:/pods/two\n", 100},
		"version 1 with a limit around it":                   {"4:memory:/pods/one\n", 700},
		"version 1 without a limit":                          {"4:memory:/free\n", 0},
		"version 1 with several controllers":                 {"4:cpuset,memory:/pods/two\n", 100},
		"version 1, another controller":                      {"4:memoryless:/pods/two\n", 0},
		"version 1 hidden":                                   {"4:memory:/pods/gone\n", 700},
		"both, the second without the controller for memory": {"4:memory:/pods/one\n0::/\n", 700},
		"both":    {"4:memory:/pods/one\n0::/pods/two\n", 200},
		"nothing": {"", 0},
		"noise":   {"x\n::\n", 0},
	} {
		var got uint64
		if m := FindCgroupIn(root, c.mine); m != nil {
			got = m.Limit
		}
		if got != c.want {
			t.Errorf("limit of %s = %d, want %d", name, got, c.want)
		}
	}
}

func TestFilePagesDoNotCountAsUsed(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"pod/memory.max": "1000\n", "pod/memory.current": "900\n", "pod/memory.stat": "anon 500\ninactive_file 200\nactive_file 100\nsock 50\n",
		"broken/memory.max": "1000\n", "broken/memory.current": "10\n", "broken/memory.stat": "inactive_file 200\nactive_file x\n",
		"half/memory.max": "1000\n", "half/memory.current": "10\n",
		"memory/pod/memory.limit_in_bytes": "1000\n", "memory/pod/memory.usage_in_bytes": "800\n",
		"memory/pod/memory.stat": "inactive_file 1\nactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n",
	})
	for name, c := range map[string]struct {
		mine string
		want uint64
		ok   bool
	}{
		"version 2":                   {"0::/pod\n", 600, true},
		"version 1":                   {"4:memory:/pod\n", 500, true},
		"numbers that contradict":     {"0::/broken\n", 0, true},
		"a file that is not there":    {"0::/half\n", 0, false},
		"the group of version 1 only": {"4:memory:/pod\n0::/\n", 500, true},
	} {
		m := FindCgroupIn(root, c.mine)
		if m == nil {
			t.Fatalf("%s: FindCgroupIn = nil, want a group", name)
		}
		if got, ok := m.Used(); got != c.want || ok != c.ok {
			t.Errorf("use of %s = %d %v, want %d %v", name, got, ok, c.want, c.ok)
		}
	}
}
