package openapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery/remote"
)

const (
	// maxKept is the largest value that is kept: etcd takes 1.5 MiB in one request. Compressed, a document of that size
	// describes more than all of Kubernetes.
	maxKept = 1 << 20
	// maxKeptAll bounds what is kept of all backends together.
	maxKeptAll = 64 << 20
)

// keeper writes the last good document of each backend down, so that a dead backend's kinds are described after the next
// start as well. A nil keeper keeps nothing.
type keeper struct {
	*remote.Keeper
	log *zap.Logger
}

func newKeeper(store remote.LastKnown, log *zap.Logger) *keeper {
	if store == nil {
		return nil
	}
	return &keeper{Keeper: remote.NewKeeper(store, log), log: log}
}

// header is the first line of a value. What follows it are the bytes of the document.
type header struct {
	UID  types.UID `json:"uid,omitempty"`
	Path string    `json:"path"`
	Hash string    `json:"hash"`
	// Sum is SHA-256 of the bytes: half a document would be found out only when a client asks for it.
	Sum string `json:"sum"`
}

func sumOf(packed []byte) string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:])
}

func encodeHolding(uid types.UID, d Document) ([]byte, error) {
	line, err := json.Marshal(header{UID: uid, Path: d.Path, Hash: d.Hash, Sum: sumOf(d.Packed)})
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{line, d.Packed}, []byte("\n")), nil
}

func decodeHolding(value []byte) (*holding, error) {
	line, packed, found := bytes.Cut(value, []byte("\n"))
	if !found {
		return nil, errors.New("there is no document in it")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("decode what is written about it: %w", err)
	}
	if h.Sum != sumOf(packed) {
		return nil, errors.New("the document is not what was written")
	}
	return &holding{uid: h.UID, document: &Document{Path: h.Path, Hash: h.Hash, Packed: packed}}, nil
}

// load returns what was kept, by APIService. What cannot be read is left out: the backend will say it again.
func (k *keeper) load(ctx context.Context) (map[string]*holding, error) {
	if k == nil {
		return nil, nil
	}
	values, err := k.Load(ctx)
	if err != nil {
		return nil, err
	}
	kept := map[string]*holding{}
	for name, value := range values {
		h, err := decodeHolding(value)
		if err != nil {
			k.log.Warn("ignoring an unreadable OpenAPI document that was kept", zap.String("apiservice", name), zap.Error(err))
			continue
		}
		kept[name] = h
	}
	return kept, nil
}

func (k *keeper) run(ctx context.Context) {
	if k != nil {
		k.Run(ctx)
	}
}

// follow hears what any replica saves until ctx ends.
func (k *keeper) follow(ctx context.Context, saved func(name string, h *holding)) {
	if k == nil {
		return
	}
	k.Follow(ctx, func(name string, value []byte) {
		h, err := decodeHolding(value)
		if err != nil {
			k.log.Warn("ignoring an unreadable OpenAPI document of another replica", zap.String("apiservice", name), zap.Error(err))
			return
		}
		saved(name, h)
	})
}

// save keeps the document, unless it is too large or there is too much already. What was kept before then stays: an old
// description is better than none.
func (k *keeper) save(name string, uid types.UID, d Document, all int) {
	if k == nil {
		return
	}
	value, err := encodeHolding(uid, d)
	if err == nil && (len(value) > maxKept || all > maxKeptAll) {
		err = fmt.Errorf("it has %d bytes of the %d that all have together", len(value), all)
	}
	if err != nil {
		k.log.Warn("an OpenAPI document will not outlive this process", zap.String("apiservice", name), zap.Error(err))
		return
	}
	k.Save(name, value)
}

func (k *keeper) forget(name string) {
	if k != nil {
		k.Forget(name)
	}
}
