package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"portico.dev/internal/aggregator"
)

// holdConnections is how long connections wait in an inherited socket while the program starts. Clients time out a
// TLS handshake after ten seconds.
const holdConnections = 8 * time.Second

// useInheritedSocket serves on the socket of the service manager (systemd socket activation), if there is one.
// Connections then wait in that socket while the program restarts.
func useInheritedSocket(c *aggregator.Config) error {
	inherited, err := activation.Listeners()
	if err != nil {
		return fmt.Errorf("sockets of the service manager (LISTEN_FDS): %w", err)
	}
	if len(inherited) == 0 {
		return nil
	}
	if len(inherited) > 1 || inherited[0] == nil {
		return fmt.Errorf("the service manager has opened %d sockets (LISTEN_FDS); this program serves on one, which listens for TCP", len(inherited))
	}
	at, ok := inherited[0].Addr().(*net.TCPAddr)
	if !ok {
		return errors.Join(fmt.Errorf("the service manager has opened %s (LISTEN_FDS); a TCP socket is needed: give ListenStream= an address and a port", inherited[0].Addr()), inherited[0].Close())
	}
	c.Embedded.Listener, c.Embedded.HoldConnections = inherited[0], holdConnections
	c.BindAddress, c.SecurePort = at.IP.String(), at.Port
	return nil
}
