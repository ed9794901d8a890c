package aggregator

import (
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/store"
)

// membersIn are the members of etcd that a data directory knows, and the certificates by which they are reached.
func membersIn(dataDir string) (member *store.Cluster, addresses []string, err error) {
	known, err := store.ReadMembership(filepath.Join(dataDir, "etcd"))
	if err != nil {
		return nil, nil, err
	}
	if known == nil {
		return nil, nil, fmt.Errorf("%s: %w", dataDir, store.ErrSingle)
	}
	keys, err := pki.ReadDirectory(filepath.Join(dataDir, "pki"))
	if err != nil {
		return nil, nil, err
	}
	member = &store.Cluster{Name: known.Name, Address: known.Address}
	member.CAFile, member.CertFile, member.KeyFile = keys.EtcdFiles()
	return member, append([]string{known.Address}, known.Others...), nil
}

// MembersIn reaches the members of etcd by what a data directory has, also while the front door there does not run. The caller must close it.
func MembersIn(dataDir string, log *zap.Logger) (*store.RemoteMembers, error) {
	member, addresses, err := membersIn(dataDir)
	if err != nil {
		return nil, err
	}
	return store.DialMembers(member, log, addresses...)
}
