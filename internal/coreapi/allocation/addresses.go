package allocation

import (
	"fmt"
	"iter"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// The lower part of a range is reserved for Services that request an address, as long as the rest has free addresses
// (KEP-3070).
const (
	minStaticAddresses, maxStaticAddresses = 16, 256
	// staticAddressShare is the divisor for the lower part of the range.
	staticAddressShare = 16
)

// DefaultClusterIPRange is kube-apiserver's default.
var DefaultClusterIPRange = netip.MustParsePrefix("10.0.0.0/24")

// FamilyOf returns the family of an address or of the base of a range.
func FamilyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() || a.Is4In6() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// parseAddress accepts the same addresses as validation, including leading zeros of old objects.
func parseAddress(s string) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return a.Unmap(), ok
}

// CheckRange returns an error if p cannot be a range of cluster IPs.
func CheckRange(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("%s is not a range of addresses", p)
	case p.Addr().Is4In6():
		return fmt.Errorf("%s is an IPv4 range in IPv6 notation; write it as IPv4", p)
	case p.Addr().Is6() && p.Bits() < 64:
		return fmt.Errorf("%s is too large: the shortest prefix of an IPv6 range is 64", p)
	case p.Addr().BitLen()-p.Bits() < 3:
		return fmt.Errorf("%s is too small: it has to hold 8 addresses", p)
	}
	return nil
}

// FirstAddress returns the address of the Service kubernetes in a range.
func FirstAddress(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// lastAddress returns the last address that can be allocated, which excludes the broadcast address of IPv4.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// inRange reports whether an address can be allocated.
func inRange(p netip.Prefix, a netip.Addr) bool {
	return a.BitLen() == p.Addr().BitLen() && !a.Less(FirstAddress(p)) && !lastAddress(p).Less(a)
}

// dynamicAddresses yields the addresses of a range in allocation order for Services without a requested address: the upper part
// from a random address on, then the lower part. It omits the first address.
func dynamicAddresses(p netip.Prefix) iter.Seq[netip.Addr] {
	first, last := FirstAddress(p).Next(), lastAddress(p)
	size := distance(first, last)
	size.Add(size, big.NewInt(1))
	static := big.NewInt(0)
	if size.Cmp(big.NewInt(minStaticAddresses)) > 0 {
		static.Div(size, big.NewInt(staticAddressShare))
		static = clamp(static, minStaticAddresses, maxStaticAddresses)
	}
	upper := plus(first, static)
	return func(yield func(netip.Addr) bool) {
		if !rotated(upper, last, yield) || !upper.Prev().Less(first) && !rotated(first, upper.Prev(), yield) {
			return
		}
	}
}

func clamp(n *big.Int, least, most int64) *big.Int {
	if n.Cmp(big.NewInt(least)) < 0 {
		return big.NewInt(least)
	}
	if n.Cmp(big.NewInt(most)) > 0 {
		return big.NewInt(most)
	}
	return n
}

// rotated yields every address from first to last once, beginning at a random one. It returns false if yield does.
func rotated(first, last netip.Addr, yield func(netip.Addr) bool) bool {
	size := distance(first, last)
	size.Add(size, big.NewInt(1))
	random := new(big.Int).SetUint64(rand.Uint64())
	start := plus(first, random.Mod(random, size))
	for a := start; ; {
		if !yield(a) {
			return false
		}
		if a == last {
			a = first
		} else {
			a = a.Next()
		}
		if a == start {
			return true
		}
	}
}

func distance(from, to netip.Addr) *big.Int {
	return new(big.Int).Sub(new(big.Int).SetBytes(to.AsSlice()), new(big.Int).SetBytes(from.AsSlice()))
}

func plus(a netip.Addr, n *big.Int) netip.Addr {
	sum := new(big.Int).Add(new(big.Int).SetBytes(a.AsSlice()), n)
	out, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, a.BitLen()/8))) // within the range
	return out
}

// familiesOf returns the distinct families of ranges, in the order of ranges.
func familiesOf(ranges []netip.Prefix) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, r := range ranges {
		if f := FamilyOf(r.Addr()); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	return families
}
