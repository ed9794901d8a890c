package cluster

import "net"

// tunnel is an upgraded connection, which package transport leaves to its user. It ends with its Cluster.
type tunnel struct {
	net.Conn
	cluster *Cluster
}

// track returns a connection that Run closes, or that is closed already if Run has ended.
func (c *Cluster) track(conn net.Conn) net.Conn {
	t := &tunnel{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = conn.Close()
	} else {
		c.tunnels[t] = true
	}
	return t
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	t.cluster.mu.Lock()
	delete(t.cluster.tunnels, t)
	t.cluster.mu.Unlock()
	return t.Conn.Close()
}

func (c *Cluster) closeTunnels() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for t := range c.tunnels {
		_ = t.Conn.Close() // its user closes it, too
	}
}
