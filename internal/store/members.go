package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// Member is a member of an embedded etcd cluster.
type Member struct {
	// ID is etcd's member ID in hexadecimal.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Address is where other members and clients of etcd reach it.
	Address string `json:"address"`
	// Learner reports that it does not vote yet, Started that it has ever started, Leader that it leads now.
	Learner bool `json:"learner"`
	Started bool `json:"started"`
	Leader  bool `json:"leader"`
	// Healthy reports that it responds. Error is why it does not. Version and the sizes are set for members that respond.
	Healthy bool   `json:"healthy"`
	Error   string `json:"error,omitempty"`
	Version string `json:"version,omitempty"`
	DBSize  int64  `json:"dbSizeBytes,omitempty"`
	// Index is the last entry of etcd's log that it has applied.
	Index uint64 `json:"appliedIndex,omitempty"`
}

// Role returns the name of the member's role.
func (m Member) Role() string {
	switch {
	case m.Leader:
		return "leader"
	case m.Learner:
		return "learner"
	}
	return "follower"
}

// Errors about members. Temporary ones match ErrBusy.
var (
	// ErrSingle is returned if etcd is not an embedded cluster.
	ErrSingle = errors.New("this front door has no etcd of several members: start it with --cluster-init to make it the first of them, or use etcdctl for an external etcd")
	// ErrNoMember is returned if no member has the given ID or name.
	ErrNoMember = errors.New("there is no such member")
	// ErrBusy is returned if a change must wait until another one is complete, or until members have been healthy for some
	// seconds.
	ErrBusy = errors.New("the members of etcd cannot be changed at the moment")
	// ErrVoter is returned if a voting member already has the address of the new member.
	ErrVoter = errors.New("a voting member has this address already")
)

// joiningKeys is the prefix of internal keys with a lease: one for each member that was added and has not started. A learner
// without its key is removed when another member is added.
const joiningKeys = "cluster/joining/"

const (
	// joiningTime is how long an added member may take to start.
	joiningTime = time.Minute
	// memberStatusTimeout bounds the status request to one member.
	memberStatusTimeout = 2 * time.Second
)

func (s *Store) cluster() (clientv3.Cluster, error) {
	if s.cfg.Cluster == nil {
		return nil, ErrSingle
	}
	client := s.Client()
	if client == nil {
		return nil, ErrNotReady
	}
	return client.Cluster, nil
}

// Members returns all members with their status.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	cluster, err := s.cluster()
	if err != nil {
		return nil, err
	}
	remote := s.cfg.Cluster.statusAt(s.log)
	return listMembers(ctx, cluster, func(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
		if client := s.Client(); address == s.cfg.Cluster.Address && client != nil {
			return client.Status(ctx, "")
		}
		return remote(ctx, address)
	})
}

// dial returns a client of members of etcd that authenticates with this member's certificate.
func (c *Cluster) dial(log *zap.Logger, addresses ...string) (*clientv3.Client, error) {
	certificate, err := pki.LoadKeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of this member of etcd: %w", err)
	}
	authority, err := pki.LoadBundle(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("authority of the members of etcd: %w", err)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{Pool: authority.Pool(), Certificate: certificate})
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, a := range addresses {
		endpoints = append(endpoints, memberURL(a))
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: config, DialTimeout: dialTimeout, DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
		Logger: etcdLogger(log).WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
	})
}

// listMembers lists all members and requests the status of each.
func listMembers(ctx context.Context, cluster clientv3.Cluster, status func(context.Context, string) (*clientv3.StatusResponse, error)) ([]Member, error) {
	bounded, cancel := context.WithTimeout(ctx, memberStatusTimeout)
	defer cancel()
	answer, err := cluster.MemberList(bounded, clientv3.WithSerializable()) // also works without a quorum
	if err != nil {
		return nil, fmt.Errorf("list the members of etcd: %w", err)
	}
	members := make([]Member, len(answer.Members))
	leader := make([]uint64, len(members))
	var asking sync.WaitGroup
	for i, m := range answer.Members {
		members[i] = Member{ID: strconv.FormatUint(m.ID, 16), Name: m.Name, Learner: m.IsLearner, Started: m.Name != ""}
		if len(m.PeerURLs) > 0 {
			members[i].Address = strings.TrimPrefix(m.PeerURLs[0], "https://")
		}
		if !members[i].Started {
			members[i].Error = "it has not started yet"
			continue
		}
		asking.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, memberStatusTimeout)
			defer cancel()
			found, err := status(bounded, members[i].Address)
			if err != nil {
				members[i].Error = describeError(err)
				return
			}
			members[i].Healthy, members[i].Version, members[i].DBSize, members[i].Index = found.Leader != 0, found.Version, found.DbSize, found.RaftAppliedIndex
			if !members[i].Healthy {
				members[i].Error = "it knows no leader"
			}
			leader[i] = found.Leader
		})
	}
	asking.Wait()
	for i, m := range answer.Members {
		members[i].Leader = leader[i] == m.ID // according to the member itself
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return members, nil
}

func describeError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer"
	}
	return err.Error()
}

// findMember returns the ID of the member with a hexadecimal ID or a name.
func findMember(ctx context.Context, cluster clientv3.Cluster, which string) (uint64, error) {
	answer, err := cluster.MemberList(ctx)
	if err != nil {
		return 0, memberError(err)
	}
	for _, m := range answer.Members {
		if strconv.FormatUint(m.ID, 16) == which || m.Name == which && which != "" {
			return m.ID, nil
		}
	}
	return 0, ErrNoMember
}

// RemoveMember removes the member with a hexadecimal ID or a name. etcd refuses this if it would cost the quorum.
func (s *Store) RemoveMember(ctx context.Context, which string) error {
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	return removeMember(ctx, cluster, which)
}

func removeMember(ctx context.Context, cluster clientv3.Cluster, which string) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	id, err := findMember(ctx, cluster, which)
	if err != nil {
		return err
	}
	if all, err := cluster.MemberList(ctx); err == nil && len(all.Members) == 1 {
		return errors.New("it is the only member, and cannot be removed")
	}
	_, err = cluster.MemberRemove(ctx, id)
	return memberError(err)
}

// PromoteMember makes a learner a voting member if it has caught up. Joining members promote themselves.
func (s *Store) PromoteMember(ctx context.Context, which string) error {
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	return promoteMember(ctx, cluster, which)
}

func promoteMember(ctx context.Context, cluster clientv3.Cluster, which string) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	id, err := findMember(ctx, cluster, which)
	if err != nil {
		return err
	}
	_, err = cluster.MemberPromote(ctx, id)
	return memberError(err)
}

// AddLearner adds a member that is about to start at an address, and returns the URLs of all members by name. It replaces a
// learner that began to join at that address before. It also replaces a learner at another address that has not started in
// time, because etcd allows only one learner.
func (s *Store) AddLearner(ctx context.Context, name, address string) (map[string][]string, error) {
	cluster, err := s.cluster()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	before, err := cluster.MemberList(ctx)
	if err != nil {
		return nil, memberError(err)
	}
	url := memberURL(address)
	for _, m := range before.Members {
		here := slices.Contains(m.PeerURLs, url)
		switch {
		case m.Name == name && !here:
			return nil, fmt.Errorf("a member is called %s already, at %s; remove it if it is gone", name, strings.Join(m.PeerURLs, ", "))
		case here && !m.IsLearner:
			return nil, fmt.Errorf("%w: %x (%s); if it is gone for good, remove it: aggregator member remove %x", ErrVoter, m.ID, m.Name, m.ID)
		}
	}
	for _, m := range before.Members {
		if !m.IsLearner {
			continue
		}
		if !slices.Contains(m.PeerURLs, url) {
			if busy := s.joins(ctx, m); busy != nil {
				return nil, busy
			}
		}
		s.log.Info("removing an etcd learner that did not finish joining", zap.String("id", strconv.FormatUint(m.ID, 16)), zap.Strings("address", m.PeerURLs))
		if _, err := cluster.MemberRemove(ctx, m.ID); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil, memberError(err)
		}
	}
	// From now on this member needs the other members to start, even if this process ends.
	if err := s.changeMembership(func(m *Membership) {
		if !slices.Contains(m.Others, address) {
			m.Others = append(m.Others, address)
		}
	}); err != nil {
		return nil, err
	}
	answer, err := cluster.MemberAddAsLearner(ctx, []string{url})
	if errors.Is(err, rpctypes.ErrMemberNotFound) { // the ID depends on the address and the second, and this ID was removed in the same second
		return nil, fmt.Errorf("%w: a member with this address was just removed", ErrBusy)
	}
	if err != nil {
		return nil, memberError(err)
	}
	// If this fails, another joining member may replace this one immediately.
	if err := s.putFor(ctx, joiningKeys+strconv.FormatUint(answer.Member.ID, 16), nil, joiningTime); err != nil {
		s.log.Warn("failed to mark an etcd learner as joining; another joining member may replace it", zap.Error(err))
	}
	urls := map[string][]string{}
	for _, m := range answer.Members {
		called := m.Name
		if m.ID == answer.Member.ID {
			called = name
		} else if called == "" {
			called = strconv.FormatUint(m.ID, 16)
		}
		urls[called] = m.PeerURLs
	}
	return urls, nil
}

// joins returns an error if a learner may still start, or has started.
func (s *Store) joins(ctx context.Context, m *pb.Member) error {
	id := strconv.FormatUint(m.ID, 16)
	if m.Name != "" {
		return fmt.Errorf("%w: the member %s (%s) joins; if it is gone for good, remove it: aggregator member remove %s", ErrBusy, m.Name, id, id)
	}
	_, waits, err := s.Get(ctx, joiningKeys+id)
	switch {
	case err != nil:
		return err
	case waits:
		return fmt.Errorf("%w: another member joins, at %s", ErrBusy, strings.Join(m.PeerURLs, ", "))
	}
	return nil
}

// memberError marks the temporary errors of etcd as ErrBusy.
func memberError(err error) error {
	for _, passing := range []error{
		rpctypes.ErrTooManyLearners, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrMemberLearnerNotReady,
		rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrLeaderChanged,
	} {
		if errors.Is(rpctypes.Error(err), passing) {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
	if errors.Is(rpctypes.Error(err), rpctypes.ErrMemberNotFound) {
		return ErrNoMember
	}
	return err
}

// EtcdVersion returns the major and minor version of etcd that all members support, or "" if it is not known yet.
func (s *Store) EtcdVersion() string {
	server := s.member.Load()
	if server == nil {
		return ""
	}
	v := server.ClusterVersion()
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

// RemoteMembers accesses the members of an embedded etcd cluster from a process that is not a member.
type RemoteMembers struct {
	client  *clientv3.Client
	cluster *Cluster
	log     *zap.Logger
}

// DialMembers connects to the members at some addresses with the certificates of c. The caller must close it.
func DialMembers(c *Cluster, log *zap.Logger, addresses ...string) (*RemoteMembers, error) {
	client, err := c.dial(log, addresses...)
	if err != nil {
		return nil, err
	}
	return &RemoteMembers{client, c, log}, nil
}

// Close closes the connections.
func (r *RemoteMembers) Close() { _ = r.client.Close() } // returns the error of its canceled context

// Members is like Store.Members.
func (r *RemoteMembers) Members(ctx context.Context) ([]Member, error) {
	return listMembers(ctx, r.client, r.cluster.statusAt(r.log))
}

// RemoveMember is like Store.RemoveMember.
func (r *RemoteMembers) RemoveMember(ctx context.Context, which string) error {
	return removeMember(ctx, r.client, which)
}

// PromoteMember is like Store.PromoteMember.
func (r *RemoteMembers) PromoteMember(ctx context.Context, which string) error {
	return promoteMember(ctx, r.client, which)
}

// statusAt returns a function that requests the status of the member at an address.
func (c *Cluster) statusAt(log *zap.Logger) func(context.Context, string) (*clientv3.StatusResponse, error) {
	return func(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
		client, err := c.dial(log, address)
		if err != nil {
			return nil, err
		}
		defer func() { _ = client.Close() }() // the request is complete
		return client.Status(ctx, memberURL(address))
	}
}
