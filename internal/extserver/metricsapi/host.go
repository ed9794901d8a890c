package metricsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"
)

// firstWindow is the length of the first window. It is short, so that data are available soon after the start.
const firstWindow = time.Second

// HostConfig configures a HostSource.
type HostConfig struct {
	// Node is the name of this machine's Node. Required.
	Node string
	// NodeLabels and PodLabels return the labels of Nodes and Pods, for selectors. Default: no labels, except for items that
	// are shown as pods but do not exist in Kubernetes.
	NodeLabels func() map[string]string
	PodLabels  func(namespace, name string) map[string]string

	// Pods selects the items that are shown as pods. Default: Auto.
	Pods Grouping
	// PodNamespace is the namespace of pods that do not exist in Kubernetes. Default: host.
	PodNamespace string
	// MaxPods limits the number of pods. The ones with the smallest memory usage are omitted. Default: 1000.
	MaxPods int

	// ProcPath is the mount point of procfs. Default: /proc.
	ProcPath string
	// CgroupPath is the mount point of cgroups. Default: /sys/fs/cgroup.
	CgroupPath string
	// ContainerLogPath is the directory in which kubelets create log links with the names of containers. Default:
	// /var/log/containers.
	ContainerLogPath string
	// Resolution is the length of a window. Default: 10 s.
	Resolution time.Duration
	// Logger logs failed readings. Default: no logging.
	Logger *zap.Logger
}

func (c HostConfig) withDefaults() (HostConfig, error) {
	c.Pods = cmp.Or(c.Pods, Auto)
	c.PodNamespace = cmp.Or(c.PodNamespace, "host")
	c.MaxPods = cmp.Or(c.MaxPods, 1000)
	c.ProcPath = cmp.Or(c.ProcPath, procfs.DefaultMountPoint)
	c.CgroupPath = cmp.Or(c.CgroupPath, "/sys/fs/cgroup")
	c.ContainerLogPath = cmp.Or(c.ContainerLogPath, "/var/log/containers")
	if c.Resolution <= 0 {
		c.Resolution = 10 * time.Second
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	switch {
	case c.Node == "":
		return c, errors.New("host metrics: the node needs a name")
	case dnsLabel(c.PodNamespace) != c.PodNamespace:
		return c, fmt.Errorf("namespace %q for pods of this machine: must be a DNS label", c.PodNamespace)
	case c.MaxPods < 0:
		return c, fmt.Errorf("at most %d pods: must not be negative", c.MaxPods)
	}
	return c, c.Pods.validate()
}

// HostSource reads the machine's counters periodically while Run runs. Its other methods are safe for concurrent use.
type HostSource struct {
	Cache
	config HostConfig
	fs     procfs.FS

	// The following fields are only used by Run.
	pods    podReader
	node    Pair
	history History

	ticked  atomic.Int64 // Unix nanoseconds of the last reading, successful or not
	failure atomic.Pointer[error]
	partial atomic.Pointer[error]
}

// NewHostSource returns a HostSource. It returns an error if ProcPath is not a procfs.
func NewHostSource(c HostConfig) (*HostSource, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	fs, err := procfs.NewFS(c.ProcPath)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	return &HostSource{config: c, fs: fs, pods: podReader{config: c, processes: processes{fs: fs}}}, nil
}

// Run samples until ctx ends. A failed reading is logged, and the next tick retries.
func (s *HostSource) Run(ctx context.Context) error {
	s.sample()
	next := time.NewTimer(min(firstWindow, s.config.Resolution))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		next.Reset(s.config.Resolution)
		s.sample()
	}
}

// sample reads and publishes node and pods. If one of them cannot be read, it is omitted, because autoscalers would act on
// outdated values.
func (s *HostSource) sample() {
	m := Measurement{Expires: time.Now().Add(3 * s.config.Resolution)}
	nodeErr := s.sampleNode(&m)
	podsErr := s.samplePods(&m)
	s.Publish(m)
	s.ticked.Store(time.Now().UnixNano())
	s.failure.Store(&nodeErr)
	s.partial.Store(&podsErr)
	if err := errors.Join(nodeErr, podsErr); err != nil {
		s.config.Logger.Warn("failed to read host metrics", zap.Error(err))
	}
}

func (s *HostSource) sampleNode(m *Measurement) error {
	r, err := readNode(s.fs)
	if err != nil {
		s.node = Pair{}
		return err
	}
	s.node = s.node.Next(r)
	used, span, ok := s.node.Usage()
	if !ok {
		return nil
	}
	u := NodeUsage{Name: s.config.Node, Usage: used, Span: span}
	if s.config.NodeLabels != nil {
		u.Labels = s.config.NodeLabels()
	}
	m.Nodes = append(m.Nodes, u)
	return nil
}

func (s *HostSource) samplePods(m *Measurement) error {
	found, err := s.pods.read()
	if err != nil {
		s.history = nil
		return err
	}
	found, left := found.largest(s.config.MaxPods)
	if left > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("the %d pods that use least memory are left out; at most %d are shown", left, s.config.MaxPods))
	}
	s.history = s.history.Next(found.readings())
	m.Pods = s.history.Pods()
	for i := range m.Pods {
		u := &m.Pods[i]
		u.Labels = found[PodKey{Namespace: u.Namespace, Name: u.Name}].labels
		if u.Labels == nil && s.config.PodLabels != nil {
			u.Labels = s.config.PodLabels(u.Namespace, u.Name)
		}
	}
	return nil
}

// LastError returns the errors of the last reading, nil if it succeeded.
func (s *HostSource) LastError() error { return errors.Join(load(&s.failure), load(&s.partial)) }

// Stored returns nil if there is data to serve (metrics-server's readiness check metric-storage-ready).
func (s *HostSource) Stored(context.Context) error {
	if err := load(&s.failure); err != nil {
		return err
	}
	return s.Filled(nil)
}

// Timely returns nil if the last reading is recent enough (metrics-server's liveness check metric-collection-timely).
func (s *HostSource) Timely(context.Context) error {
	last := s.ticked.Load()
	if last == 0 {
		return nil
	}
	if age := time.Since(time.Unix(0, last)); age > 3*s.config.Resolution {
		return fmt.Errorf("no reading for %s, expected every %s", age.Round(time.Second), s.config.Resolution)
	}
	return nil
}

func load(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

// readNode reads the machine's counters. The timestamp has a monotonic part, so that clock changes do not affect the window.
func readNode(fs procfs.FS) (Reading, error) {
	stat, err := fs.Stat()
	if err != nil {
		return Reading{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	at := time.Now()
	mem, err := fs.Meminfo()
	if err != nil {
		return Reading{}, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	set, err := workingSet(mem)
	if err != nil {
		return Reading{}, err
	}
	return Reading{At: at, Seconds: busySeconds(stat.CPUTotal), WorkingSet: set}, nil
}

// busySeconds returns the CPU time of this machine. I/O wait is idle time, guest time is included in user and nice, and
// stolen time is used by another machine.
func busySeconds(c procfs.CPUStat) float64 {
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
}

func workingSet(m procfs.Meminfo) (uint64, error) {
	if m.MemTotalBytes == nil || m.MemAvailableBytes == nil {
		return 0, errors.New("read /proc/meminfo: MemTotal or MemAvailable is missing; Linux 3.14 or later is needed")
	}
	if *m.MemAvailableBytes > *m.MemTotalBytes {
		return 0, nil // observed in containers with changing limits
	}
	return *m.MemTotalBytes - *m.MemAvailableBytes, nil
}
