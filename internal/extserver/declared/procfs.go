package declared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Tables maps the tables of Procfs to the paths of the names of their items.
var Tables = map[string]string{
	"processes": ".pid",
	"mounts":    ".mountPoint",
	"loadavg":   ".name",
	"netdev":    ".name",
}

// TableNames returns the names of the tables in alphabetical order.
func TableNames() []string { return slices.Sorted(maps.Keys(Tables)) }

// Procfs reads one table of this machine.
type Procfs struct {
	Table string
	// Root is the mount point of procfs. Default: /proc.
	Root string
}

// Fetch reads the table.
func (p *Procfs) Fetch(ctx context.Context) (any, error) {
	root := cmp.Or(p.Root, procfs.DefaultMountPoint)
	proc, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	switch p.Table {
	case "processes":
		return processes(ctx, proc)
	case "mounts":
		return mounts(proc)
	case "loadavg":
		return loadavg(proc)
	case "netdev":
		return netdev(proc)
	}
	return nil, fmt.Errorf("procfs has no table %q", p.Table)
}

// processes omits command lines and environments, because they may contain passwords.
func processes(ctx context.Context, proc procfs.FS) (any, error) {
	all, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	items := make([]any, 0, len(all))
	for _, p := range all {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		stat, err := p.Stat()
		if processGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", p.PID, err)
		}
		item := map[string]any{
			"pid": strconv.Itoa(p.PID), "comm": stat.Comm, "state": stat.State, "ppid": int64(stat.PPID),
			"threads": int64(stat.NumThreads), "residentBytes": int64(stat.ResidentMemory()),
			"virtualBytes": int64(stat.VirtualMemory()), "cpuSeconds": stat.CPUTime(),
		}
		if began, err := stat.StartTime(); err == nil {
			item["startTime"] = time.UnixMilli(int64(began * 1000)).UTC().Format(time.RFC3339)
		}
		if status, err := p.NewStatus(); err == nil {
			item["uid"] = int64(status.UIDs[0])
		}
		items = append(items, item)
	}
	return items, nil
}

// processGone reports whether err is due to a process that has exited.
func processGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

func mounts(proc procfs.FS) (any, error) {
	all, err := proc.GetProcMounts(1)
	if err != nil {
		// Without permission to read the mounts of process 1, use the mounts of this server.
		if all, err = proc.GetMounts(); err != nil {
			return nil, fmt.Errorf("list mounts: %w", err)
		}
	}
	// A mount hides earlier mounts at the same mount point, so the last one is visible.
	last := map[string]any{}
	for _, m := range all {
		_, readOnly := m.Options["ro"]
		last[m.MountPoint] = map[string]any{
			"mountPoint": m.MountPoint, "device": m.Source, "type": m.FSType, "readOnly": readOnly, "root": m.Root,
		}
	}
	items := make([]any, 0, len(last))
	for _, at := range slices.Sorted(maps.Keys(last)) {
		items = append(items, last[at])
	}
	return items, nil
}

func loadavg(proc procfs.FS) (any, error) {
	l, err := proc.LoadAvg()
	if err != nil {
		return nil, fmt.Errorf("load average: %w", err)
	}
	return []any{map[string]any{"name": "loadavg", "load1": l.Load1, "load5": l.Load5, "load15": l.Load15}}, nil
}

func netdev(proc procfs.FS) (any, error) {
	devices, err := proc.NetDev()
	if err != nil {
		return nil, fmt.Errorf("network devices: %w", err)
	}
	items := make([]any, 0, len(devices))
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		d := devices[name]
		items = append(items, map[string]any{
			"name":          name,
			"receivedBytes": int64(d.RxBytes), "receivedPackets": int64(d.RxPackets),
			"receiveErrors": int64(d.RxErrors), "receiveDropped": int64(d.RxDropped),
			"sentBytes": int64(d.TxBytes), "sentPackets": int64(d.TxPackets),
			"sendErrors": int64(d.TxErrors), "sendDropped": int64(d.TxDropped),
		})
	}
	return items, nil
}
