package metricsapi

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	uid1 = "11111111-2222-3333-4444-555555555555"
	uid2 = "66666666-7777-8888-9999-aaaaaaaaaaaa"
)

// lines formats findings as namespace/pod/container=seconds,bytes.
func lines(f podReadings) []string {
	var out []string
	for key, found := range f {
		for name, r := range found.containers {
			out = append(out, fmt.Sprintf("%s/%s/%s=%g,%d", key.Namespace, key.Name, name, r.Seconds, r.WorkingSet>>20))
		}
	}
	slices.Sort(out)
	return out
}

func TestKubeletCgroupsBecomePods(t *testing.T) {
	short := func(c string) string { return strings.Repeat(c, shortID) }
	for _, c := range []struct {
		situation, tree, logs string
		want                  []string
	}{
		{"version 2, systemd, with logs: the sandbox is known by having none", "cgroup-v2", "containerlogs", []string{
			"host/pod-" + uid2 + "/" + short("c") + "=1,8",
			"kube-system/coredns-abc/coredns=2.5,8", "kube-system/coredns-abc/reload-conf=0.5,3",
		}},
		{"version 2, systemd, without logs", "cgroup-v2", "nothing", []string{
			"host/pod-" + uid1 + "/" + short("0") + "=0.03,0",
			"host/pod-" + uid1 + "/" + short("a") + "=2.5,8", "host/pod-" + uid1 + "/" + short("b") + "=0.5,3",
			"host/pod-" + uid2 + "/" + short("c") + "=1,8",
		}},
		{"a node in a container, static pod", "cgroup-v2-nested", "nothing", []string{"host/pod-0123456789abcdef0123456789abcdef/" + short("d") + "=4,4"}},
		{"version 1, cgroupfs, with logs", "cgroup-v1", "containerlogs", []string{
			"host/pod-" + uid2 + "/" + short("c") + "=1,8",
			"kube-system/coredns-abc/coredns=2.5,8", "kube-system/coredns-abc/reload-conf=0.5,3",
		}},
		{"hybrid: CPU in version 1, memory in version 2", "cgroup-hybrid", "nothing", []string{"host/pod-" + uid2 + "/" + short("c") + "=1,8"}},
		{"no kubelet", "cgroup-v2-units", "containerlogs", nil},
	} {
		t.Run(c.situation, func(t *testing.T) {
			groups, err := findCgroups(filepath.Join("testdata", c.tree))
			must(t, err)
			if got := lines(groups.kubepods(filepath.Join("testdata", c.logs), "host")); !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestSystemdUnitsBecomePods(t *testing.T) {
	for _, c := range []struct {
		situation, tree string
		want            []string
	}{
		{"version 2: outermost units, Docker's containers, nothing that has ended", "cgroup-v2-units", []string{
			"host/docker-eeeeeeeeeeee/docker-eeeeeeeeeeee=1.5,8", "host/init.scope/init-scope=0.2,2",
			"host/nginx.service/nginx-service=7,30", "host/user-1000.service/user-1000-service=0.1,3",
		}},
		{"version 1, Docker by cgroupfs", "cgroup-v1", []string{"host/docker-eeeeeeeeeeee/docker-eeeeeeeeeeee=1.5,8"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			groups, err := findCgroups(filepath.Join("testdata", c.tree))
			must(t, err)
			found := groups.units("host")
			got := slices.DeleteFunc(lines(found), func(l string) bool {
				return strings.HasPrefix(l, "host/burstable-") || strings.HasPrefix(l, "host/pod")
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
	groups, err := findCgroups("testdata/cgroup-v2-units")
	must(t, err)
	labels := groups.units("host")[PodKey{Namespace: "host", Name: "user-1000.service"}].labels
	if labels[unitLabel] != "user-1000.service" || labels[sliceLabel] != "user-1000.slice" {
		t.Errorf("labels of the unit = %v, want user-1000.service and user-1000.slice", labels)
	}
}

func TestMachineWithoutCgroupsReturnsError(t *testing.T) {
	for _, tree := range []string{"testdata/cgroup-useless", "testdata/nothing", t.TempDir()} {
		if _, err := findCgroups(tree); !errors.Is(err, errNoCgroups) {
			t.Errorf("findCgroups(%q): error = %v, want errNoCgroups", tree, err)
		}
	}
}

func TestGroupingSelectsPods(t *testing.T) {
	for _, c := range []struct {
		situation string
		by        Grouping
		tree      string
		want      string // one of the pods
		wrong     string
	}{
		{"a kubelet's pods come first", Auto, "cgroup-v2", "kube-system/coredns-abc", ""},
		{"units where there is no kubelet", Auto, "cgroup-v2-units", "host/nginx.service", ""},
		{"processes where there are no cgroups", Auto, "cgroup-useless", "host/" + dnsName(ourGroup(t)), ""},
		{"units beside a kubelet, when told", Units, "cgroup-v2", "host/nginx.service", ""},
		{"processes, when told", Processes, "cgroup-v2", "host/" + dnsName(ourGroup(t)), ""},
		{"a kubelet's pods, when told, and there are no cgroups", Kubepods, "cgroup-useless", "", "no cgroup hierarchy"},
		{"none, when told", None, "cgroup-v2", "", ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			s, err := NewHostSource(HostConfig{Node: "n", Pods: c.by, CgroupPath: "testdata/" + c.tree, ContainerLogPath: "testdata/containerlogs"})
			must(t, err)
			found, err := s.pods.read()
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error of read = %v, want an error that contains %q", err, c.wrong)
				}
				return
			}
			must(t, err)
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("pods = %v, want none", lines(found))
				}
				return
			}
			ns, name, _ := strings.Cut(c.want, "/")
			if found[PodKey{Namespace: ns, Name: name}].containers == nil {
				t.Errorf("pods = %v, want %s among them", lines(found), c.want)
			}
		})
	}
}

// ourGroup returns the unit or the command of this test.
func ourGroup(t *testing.T) string {
	t.Helper()
	self, err := procfs.Self()
	must(t, err)
	stat, err := self.Stat()
	must(t, err)
	name, _ := groupOf(self, stat)
	return name
}

func TestLargestPodsAreKept(t *testing.T) {
	f := podReadings{}
	for i := range 10 {
		f.add("host", fmt.Sprintf("p%d", i), nil, Reading{WorkingSet: uint64(i) << 20})
	}
	kept, left := f.largest(2)
	if got := lines(kept); left != 8 || !slices.Equal(got, []string{"host/p8/p8=0,8", "host/p9/p9=0,9"}) {
		t.Errorf("largest(2) = %v, %d omitted, want p8 and p9, 8 omitted", got, left)
	}
}

// Units with the same prefix are measured separately.
func TestA51LongUnitNamesStayDistinct(t *testing.T) {
	begin := strings.Repeat("x", 63)
	for name, spell := range map[string]func(string) string{"pod": dnsName, "container": dnsLabel} {
		if one, two := spell(begin+"1.service"), spell(begin+"2.service"); one == two {
			t.Errorf("%s of both = %q, want two names", name, one)
		}
	}
}

func TestGeneratedNamesAreValid(t *testing.T) {
	for _, name := range []string{
		"nginx.service", "user@1000.service", `systemd-fsck@dev-disk-by\x2duuid-1.service`, "memfd:sealed-91", "(sd-pam)",
		"...", "", "-", "Größe", strings.Repeat("x", 62) + "-.service", "kworker/u8:2-kvfree_rcu_reclaim", "a..b", "A_b",
	} {
		if problems := validation.IsDNS1123Subdomain(dnsName(name)); problems != nil {
			t.Errorf("dnsName(%q) = %q: %v, want a valid subdomain", name, dnsName(name), problems)
		}
		if problems := validation.IsDNS1123Label(dnsLabel(name)); problems != nil {
			t.Errorf("dnsLabel(%q) = %q: %v, want a valid label", name, dnsLabel(name), problems)
		}
		if problems := validation.IsValidLabelValue(labelValue(name)); problems != nil {
			t.Errorf("labelValue(%q) = %q: %v, want a valid label value", name, labelValue(name), problems)
		}
	}
}

// Reading must succeed on every machine, and every machine has at least one process.
func TestPodsAreFoundOnThisMachine(t *testing.T) {
	s, err := NewHostSource(HostConfig{Node: "n"})
	must(t, err)
	found, err := s.pods.read()
	must(t, err)
	if len(found) == 0 {
		t.Error("read found no pods on this machine, want at least one")
	}
}
