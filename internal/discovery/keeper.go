package discovery

import (
	"context"
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/discovery/remote"
)

// LastKnown keeps what backends last said, by the name of the APIService.
type LastKnown = remote.LastKnown

// keeper knows how a testimony is written down.
type keeper struct {
	*remote.Keeper
	log *zap.Logger
}

func newKeeper(store LastKnown, log *zap.Logger) *keeper {
	return &keeper{Keeper: remote.NewKeeper(store, log), log: log}
}

func (k *keeper) load(ctx context.Context) (map[string]*known, error) {
	values, err := k.Load(ctx)
	if err != nil {
		return nil, err
	}
	return k.decode(values), nil
}

// decode leaves out what it cannot read: the backend will say it again.
func (k *keeper) decode(values map[string][]byte) map[string]*known {
	all := map[string]*known{}
	for name, value := range values {
		last, err := decodeKnown(value)
		if err != nil {
			k.log.Warn("ignoring unreadable last-known discovery", zap.String("apiservice", name), zap.Error(err))
			continue
		}
		all[name] = last
	}
	return all
}

func decodeKnown(value []byte) (*known, error) {
	last := &known{}
	if err := json.Unmarshal(value, last); err != nil {
		return nil, err
	}
	if err := check(last.Resources); err != nil {
		return nil, err
	}
	last.Resources = fill(last.Resources)
	return last, nil
}

func (k *keeper) save(name string, last *known) {
	value, err := json.Marshal(last)
	if err != nil {
		k.log.Error("cannot encode last-known discovery", zap.String("apiservice", name), zap.Error(err))
		return
	}
	k.Save(name, value)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
