package allocation

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
)

// PortRange is where node ports are from. The zero value is DefaultNodePorts.
type PortRange struct {
	First, Last int32
}

// DefaultNodePorts are kube-apiserver's.
var DefaultNodePorts = PortRange{30000, 32767}

// The lower part is left to those who name a port (KEP-3668).
const (
	minStaticPorts, maxStaticPorts = 16, 128
	staticPortShare                = 32
)

// ParsePortRange reads "first-last", "first+size" or one port, as kube-apiserver's flag does.
func ParsePortRange(s string) (PortRange, error) {
	bad := func() (PortRange, error) {
		return PortRange{}, fmt.Errorf("%q is not a range of ports; write first-last, such as %s", s, DefaultNodePorts)
	}
	s = strings.TrimSpace(s)
	from, to, ranged := strings.Cut(s, "-")
	size := ""
	if !ranged {
		from, size, _ = strings.Cut(s, "+")
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		return bad()
	}
	last := first
	switch {
	case ranged:
		last, err = strconv.Atoi(to)
	case size != "":
		var n int
		n, err = strconv.Atoi(size)
		last = first + n
	}
	if err != nil || first < 1 || last > 65535 || last < first {
		return bad()
	}
	return PortRange{int32(first), int32(last)}, nil
}

// String implements pflag.Value.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Set implements pflag.Value.
func (r *PortRange) Set(s string) (err error) {
	*r, err = ParsePortRange(s)
	return err
}

// Type implements pflag.Value.
func (r *PortRange) Type() string { return "portRange" }

func (r PortRange) contains(port int32) bool { return port >= r.First && port <= r.Last }

// dynamic are the ports in the order in which they are given to those who name none.
func (r PortRange) dynamic() iter.Seq[int32] {
	size := r.Last - r.First + 1
	static := int32(0)
	if size > minStaticPorts {
		static = min(max(size/staticPortShare, minStaticPorts), maxStaticPorts)
	}
	return func(yield func(int32) bool) {
		for _, band := range [][2]int32{{r.First + static, r.Last}, {r.First, r.First + static - 1}} {
			size := band[1] - band[0] + 1
			if size <= 0 {
				continue
			}
			start := rand.Int32N(size)
			for i := range size {
				if !yield(band[0] + (start+i)%size) {
					return
				}
			}
		}
	}
}
