package e2e

import (
	"context"
	"errors"
	"fmt"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico.dev/e2e/programs"
)

// stored is the command stored: it waits until the etcd behind a unix socket has all of these keys. A front door shows the
// state of extension servers first and stores it later.
func stored(ts *testscript.TestScript, args []string) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + ts.MkAbs(args[0])}, Logger: zap.NewNop()})
	ts.Check(err)
	defer func() { _ = client.Close() }()
	for _, key := range args[1:] {
		ts.Check(programs.Poll(nil, func() error { return has(client, key) }))
	}
}

var errNotStored = errors.New("etcd does not have it")

func has(client *clientv3.Client, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	found, err := client.Get(ctx, key, clientv3.WithCountOnly())
	if err == nil && found.Count == 0 {
		err = errNotStored
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
