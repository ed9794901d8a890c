package yard

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that programs are given which cannot pick one. Those that the kernel hands to whoever dials begin above.
const firstPort, lastPort = 20_000, 30_000

// port is one that nobody listens at, and that this yard has given to nobody else.
func (y *Yard) port() (string, error) {
	for range 1000 {
		n := firstPort + rand.IntN(lastPort-firstPort)
		if y.ports[n] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n)))
		if err != nil {
			continue
		}
		y.ports[n] = true
		return strconv.Itoa(n), l.Close()
	}
	return "", fmt.Errorf("no port between %d and %d is free", firstPort, lastPort)
}
