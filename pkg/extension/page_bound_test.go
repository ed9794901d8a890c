package extension

import (
	"testing"
	"time"
)

func TestKeptPagesAreBounded(t *testing.T) {
	p := newPages()
	now := time.Unix(1000, 0)
	key := func(i int) pageKey { return pageKey{byte(i), byte(i >> 8)} }
	for i := range 2 * maxPages {
		p.keep(key(i), make([]object, 10), now)
	}
	if p.kept.Len() != maxPages || p.items != 10*maxPages {
		t.Errorf("%d lists with %d objects kept, want %d lists with %d objects", p.kept.Len(), p.items, maxPages, 10*maxPages)
	}
	p.keep(key(9999), make([]object, maxPageItems-5), now.Add(time.Minute))
	if p.items > maxPageItems {
		t.Errorf("%d objects kept, want at most %d", p.items, maxPageItems)
	}
	if _, ok := p.find(key(9999), now.Add(pageTTL+time.Second)); !ok {
		t.Error("find of a list kept for four minutes = false, want true")
	}
	if _, ok := p.find(key(9999), now.Add(pageTTL+2*time.Minute)); ok || p.items != 0 || p.kept.Len() != 0 {
		t.Errorf("after the TTL: %d lists with %d objects kept, want none", p.kept.Len(), p.items)
	}
}
