package extension

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apiserver/pkg/authentication/user"
)

// viewLimit bounds the views of one PerCaller resource. Evicting one costs its watchers a 410 on their next request.
const viewLimit = 1024

// views holds the views of one resource: one for everybody, or one for each caller.
type views struct {
	resource Resource
	versions *versions

	mu     sync.Mutex // makes lookup and creation one step
	byUser *lru.Cache[[sha256.Size]byte, *view]
}

func newViews(s Resource, v *versions) *views {
	limit := 1
	if s.perCaller {
		limit = viewLimit
	}
	cache, err := lru.New[[sha256.Size]byte, *view](limit)
	if err != nil {
		panic("extension: " + err.Error()) // only for a limit below one
	}
	return &views{resource: s, versions: v, byUser: cache}
}

// of is the view that caller may see.
func (vs *views) of(caller user.Info) *view {
	q := everything()
	var id [sha256.Size]byte
	if vs.resource.perCaller {
		q.User = caller
		id = audience(caller)
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v, ok := vs.byUser.Get(id); ok {
		return v
	}
	v := newView(vs.resource, q, vs.versions)
	vs.byUser.Add(id, v)
	return v
}

// audience tells callers apart by everything that a provider can see of them: two requests share a view only when
// name, uid, groups and extra are all the same.
func audience(u user.Info) [sha256.Size]byte {
	// Marshalling plain strings cannot fail; quoting keeps ("a","b") and ("ab","") apart.
	raw, _ := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	return sha256.Sum256(raw)
}
