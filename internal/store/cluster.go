package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// Cluster configures the embedded etcd as a cluster of several members, each in a separate process.
type Cluster struct {
	// Name is the name of this member. It is unique in the cluster.
	Name string
	// Address is the host:port that other members use to reach this one. Listen is the address of its listener.
	Address, Listen string
	// CAFile contains the CA of the members' certificates. CertFile and KeyFile belong to this member. Members do not accept
	// other clients.
	CAFile, CertFile, KeyFile string
	// Join is called if the data directory does not contain a member. It adds this member to an existing cluster as a learner,
	// and returns the URLs of all members by name. If nil, this is the first member.
	Join func(ctx context.Context) (members map[string][]string, err error)
}

// memberURL returns the URL of the member at an address, for other members and for clients.
func memberURL(address string) string { return "https://" + address }

// urls returns the URLs of this member.
func (c *Cluster) urls() types.URLs { return types.URLs{{Scheme: "https", Host: c.Address}} }

// memberName returns the name of the configured member.
func (c *Config) memberName() string {
	if c.Cluster == nil {
		return memberName
	}
	return c.Cluster.Name
}

// peerURLs returns the peer URLs of the configured member.
func (c *Config) peerURLs() types.URLs {
	if c.Cluster == nil {
		peer, _ := url.Parse(peerURL) // a valid constant
		return types.URLs{*peer}
	}
	return c.Cluster.urls()
}

// amongOthers adapts the configuration of a single member to a member of a cluster.
func (c *Cluster) amongOthers(server *config.ServerConfig, joined map[string][]string) error {
	server.ElectionTicks, server.PreVote = clusterElectionTicks, true
	server.PeerTLSInfo = transport.TLSInfo{
		CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.CAFile, ClientCertAuth: true, Logger: server.Logger,
	}
	server.ClientURLs = append(server.ClientURLs, c.urls()...)
	if joined == nil {
		return nil
	}
	server.NewCluster, server.InitialPeerURLsMap, server.InitialClusterToken = false, types.URLsMap{}, clusterToken
	for name, members := range joined {
		urls, err := types.NewURLs(members)
		if err != nil {
			return fmt.Errorf("member %s of the cluster: %w", name, err)
		}
		server.InitialPeerURLsMap[name] = urls
	}
	return nil
}

const (
	// clusterElectionTicks is etcd's default: a leader that is slow for half a second stays the leader.
	clusterElectionTicks = 10
	// promoteInterval is the time between two attempts to become a voting member.
	promoteInterval = 250 * time.Millisecond
	// membershipInterval is the interval at which the list of members is checked.
	membershipInterval = time.Second
	// joinAttempts bounds the attempts to join that fail because the cluster changes concurrently.
	joinAttempts = 5
)

// clusterFile is in etcd's data directory if the member belongs to a cluster.
const clusterFile = "cluster.json"

// Membership describes a member of a cluster while it is not running.
type Membership struct {
	// Name is the name of the member. Address is where other members reach it.
	Name    string `json:"name"`
	Address string `json:"address"`
	// Joining reports that the member's first start is not complete.
	Joining bool `json:"joining,omitempty"`
	// Others are the addresses of the other members, including a member that is about to join.
	Others []string `json:"others,omitempty"`
}

// ReadMembership reads the membership from a data directory of etcd. It returns nil if the directory does not contain a member
// of a cluster.
func ReadMembership(dir string) (*Membership, error) {
	text, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster of the member: %w", err)
	}
	m := &Membership{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, clusterFile), err)
	}
	if m.Name == "" || m.Address == "" {
		return nil, fmt.Errorf("%s: it has no name or no address", filepath.Join(dir, clusterFile))
	}
	return m, nil
}

func writeMembership(dir string, m Membership) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(dir, clusterFile), append(text, '\n'), 0o600)
}

// changeMembership changes the membership stored in the data directory.
func (s *Store) changeMembership(change func(*Membership)) error {
	s.membership.Lock()
	defer s.membership.Unlock()
	m, err := ReadMembership(s.cfg.DataDir)
	if err != nil {
		return err
	}
	if m == nil {
		m = &Membership{}
	}
	m.Name, m.Address = s.cfg.Cluster.Name, s.cfg.Cluster.Address
	change(m)
	return writeMembership(s.cfg.DataDir, *m)
}

// prepareCluster prepares the data directory of a member of a cluster. joined contains the members of the cluster that this
// member is about to join. It is nil if the data directory already has a member, or this is the first one.
func (s *Store) prepareCluster(ctx context.Context) (joined map[string][]string, err error) {
	c := s.cfg.Cluster
	known, err := ReadMembership(s.cfg.DataDir)
	switch {
	case err != nil:
		return nil, err
	case known != nil && !known.Joining && !HoldsEtcd(s.cfg.DataDir):
		return nil, errMissingMember(s.cfg.DataDir)
	case known != nil && !known.Joining:
		return nil, prepareMember(s.cfg, s.disk)
	case c.Join == nil && known != nil:
		return nil, fmt.Errorf("the member in %s has not joined its cluster yet; start with --join and a token again", s.cfg.DataDir)
	case c.Join == nil:
		if err := prepareMember(s.cfg, s.disk); err != nil {
			return nil, err
		}
		return nil, s.changeMembership(func(*Membership) {})
	}
	dir := filepath.Join(s.cfg.DataDir, memberDir)
	found, err := inspect(dir)
	if err != nil {
		return nil, err
	}
	if found.wal.files > 0 && !found.neverUsed() {
		if known == nil {
			return nil, fmt.Errorf("%s has an etcd that is not one of that cluster; choose another data directory to join it", s.cfg.DataDir)
		}
		return nil, found.check(true)
	}
	// The existing files have never been part of a quorum. They are removed, and the member joins the cluster again.
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove what an earlier start left: %w", err)
	}
	if err := s.changeMembership(func(m *Membership) { m.Joining = true }); err != nil {
		return nil, err
	}
	return c.Join(ctx)
}

// isAlone reports whether a member is the only one.
func isAlone(server *etcdserver.EtcdServer) bool {
	members := server.Cluster().Members()
	return len(members) == 1 && members[0].ID == server.MemberID()
}

// takePlace promotes a member that has joined to a voting member, and updates its address in the cluster if it has changed. It
// returns when that is done, ctx ends or the member fails.
func (s *Store) takePlace(ctx context.Context, m *runningMember) error {
	tick := time.NewTicker(promoteInterval)
	defer tick.Stop()
	progress := time.NewTicker(progressLogInterval)
	defer progress.Stop()
	for {
		err := s.tryTakePlace(ctx, m.server)
		if err == nil {
			return s.changeMembership(func(m *Membership) { m.Joining = false })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.failure.failed:
			return m.failure.err
		case <-m.server.StopNotify():
			return s.stoppedError(m)
		case <-progress.C:
			s.log.Info("not a voting etcd member yet", zap.Error(err))
		case <-tick.C:
		}
	}
}

func (s *Store) tryTakePlace(ctx context.Context, server *etcdserver.EtcdServer) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	self := server.Cluster().Member(server.MemberID())
	if self == nil {
		return errors.New("the cluster does not know this member yet")
	}
	if self.IsLearner {
		if _, err := server.PromoteMember(ctx, uint64(self.ID)); err != nil && !errors.Is(err, membership.ErrMemberNotLearner) {
			return fmt.Errorf("promote this member: %w", err)
		}
		s.log.Info("promoted to a voting etcd member", zap.Stringer("id", self.ID))
	}
	urls := s.cfg.Cluster.urls().StringSlice()
	if slices.Equal(self.PeerURLs, urls) {
		return nil
	}
	if _, err := server.UpdateMember(ctx, membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: urls}}); err != nil {
		return fmt.Errorf("tell the other members the address of this one: %w", err)
	}
	s.log.Info("updated the peer address of this etcd member", zap.Strings("before", self.PeerURLs), zap.Strings("now", urls))
	return nil
}

// followMembership records the other members until ctx ends.
func (s *Store) followMembership(ctx context.Context, server *etcdserver.EtcdServer) {
	var last []string
	look := func() {
		var others []string
		for _, m := range server.Cluster().Members() {
			if m.ID == server.MemberID() {
				continue
			}
			for _, u := range m.PeerURLs {
				others = append(others, strings.TrimPrefix(u, "https://"))
			}
		}
		slices.Sort(others)
		if last != nil && slices.Equal(others, last) {
			return
		}
		if err := s.changeMembership(func(m *Membership) { m.Others = others }); err != nil {
			s.log.Warn("failed to record the changed etcd membership", zap.Error(err))
			return
		}
		last = append([]string{}, others...)
	}
	look()
	every(ctx, membershipInterval, look)
}

// ErrRemoved is returned if this member was removed from its cluster.
var ErrRemoved = errors.New("this member was removed from the cluster of etcd")

// stoppedError returns the reason why etcd has stopped unexpectedly.
func (s *Store) stoppedError(m *runningMember) error {
	if m.removed.Load() {
		return fmt.Errorf("%w; to join it again, remove the directory %s, and start with --join and a token", ErrRemoved, s.cfg.DataDir)
	}
	return errors.New("embedded etcd stopped; its log says why")
}

// hostOf returns the host of an address that New has checked.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func (c *Cluster) check() error {
	switch {
	case c.Name == "" || strings.ContainsAny(c.Name, "=,"):
		return fmt.Errorf("member name %q of etcd: a name without = and , is needed", c.Name)
	case net.ParseIP(hostOf(c.Address)) == nil:
		return fmt.Errorf("address %q of this member of etcd: an IP address and a port are needed", c.Address)
	case c.CAFile == "" || c.CertFile == "" || c.KeyFile == "":
		return errors.New("members of etcd need certificates")
	}
	return nil
}
