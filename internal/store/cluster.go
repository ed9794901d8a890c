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

// Cluster makes the embedded etcd one of several members, each in a process of its own.
type Cluster struct {
	// Name is that of this member. No other member has it.
	Name string
	// Address is host:port by which the other members reach this one, and Listen is where it listens for them.
	Address, Listen string
	// CAFile is the authority of the members' certificates; CertFile and KeyFile are this one's. Members accept no other clients.
	CAFile, CertFile, KeyFile string
	// Join is called when there is no member in the data directory yet. It adds this one to the cluster of others, as a learner, and
	// returns the URLs of all members by their names. Nil: this is the first member.
	Join func(ctx context.Context) (members map[string][]string, err error)
}

// url is that of a member at an address, for other members and for clients.
func memberURL(address string) string { return "https://" + address }

// urls are those of this member.
func (c *Cluster) urls() types.URLs { return types.URLs{{Scheme: "https", Host: c.Address}} }

// name is that of the member of a configuration.
func (c *Config) memberName() string {
	if c.Cluster == nil {
		return memberName
	}
	return c.Cluster.Name
}

// peerURLs are those of the member of a configuration.
func (c *Config) peerURLs() types.URLs {
	if c.Cluster == nil {
		peer, _ := url.Parse(peerURL) // a constant that parses
		return types.URLs{*peer}
	}
	return c.Cluster.urls()
}

// amongOthers changes the configuration of a single member to that of one of several.
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
	// clusterElectionTicks is etcd's own default: a leader that is slow for half a second is still the leader.
	clusterElectionTicks = 10
	// promoteInterval is the time between two attempts to become a voting member.
	promoteInterval = 250 * time.Millisecond
	// membershipInterval is how often it is looked who the other members are.
	membershipInterval = time.Second
	// joinAttempts bounds attempts to join that fail because the cluster changes meanwhile.
	joinAttempts = 5
)

// clusterFile is beside etcd's files, and is there if the member is one of several.
const clusterFile = "cluster.json"

// Membership is what is known of a member of a cluster while it does not run.
type Membership struct {
	// Name is that of the member, and Address where the others reach it.
	Name    string `json:"name"`
	Address string `json:"address"`
	// Joining is that its first start is not over.
	Joining bool `json:"joining,omitempty"`
	// Others are the addresses of the other members. A member that is about to join is among them.
	Others []string `json:"others,omitempty"`
}

// ReadMembership reads what a data directory of etcd says about its member. It is nil if the member is a single one, or there is none.
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

// changeMembership changes what the data directory says about this member.
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

// prepareCluster prepares the data directory of one of several members. joined are the members of the cluster that it is about to join; nil: it
// has a member already, or is the first.
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
	// Whatever is there was never a vote of anybody's: it is removed, and the cluster is asked anew.
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove what an earlier start left: %w", err)
	}
	if err := s.changeMembership(func(m *Membership) { m.Joining = true }); err != nil {
		return nil, err
	}
	return c.Join(ctx)
}

// isAlone reports whether a member has no others.
func isAlone(server *etcdserver.EtcdServer) bool {
	members := server.Cluster().Members()
	return len(members) == 1 && members[0].ID == server.MemberID()
}

// takePlace makes a member that has joined a voting one, and tells the others where this one is reached if that has changed. It returns
// when that is done, ctx ends or the member fails.
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
			s.log.Info("this member is not a voting member of etcd yet", zap.Error(err))
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
		s.log.Info("this member of etcd has caught up with the others and votes", zap.Stringer("id", self.ID))
	}
	urls := s.cfg.Cluster.urls().StringSlice()
	if slices.Equal(self.PeerURLs, urls) {
		return nil
	}
	if _, err := server.UpdateMember(ctx, membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: urls}}); err != nil {
		return fmt.Errorf("tell the other members the address of this one: %w", err)
	}
	s.log.Info("the address of this member of etcd has changed", zap.Strings("before", self.PeerURLs), zap.Strings("now", urls))
	return nil
}

// followMembership records who the other members are, until ctx ends.
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
			s.log.Warn("the members of etcd have changed, which cannot be written down", zap.Error(err))
			return
		}
		last = append([]string{}, others...)
	}
	look()
	every(ctx, membershipInterval, look)
}

// ErrRemoved is when this member was removed from its cluster.
var ErrRemoved = errors.New("this member was removed from the cluster of etcd")

// stoppedError says why etcd has stopped by itself.
func (s *Store) stoppedError(m *runningMember) error {
	if m.removed.Load() {
		return fmt.Errorf("%w; to join it again, remove the directory %s, and start with --join and a token", ErrRemoved, s.cfg.DataDir)
	}
	return errors.New("embedded etcd stopped; its log says why")
}

// hostOf is the host of an address that New has checked.
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
