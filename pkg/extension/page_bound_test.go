package extension

import (
	"testing"
	"time"
)

func TestPagesAreBounded(t *testing.T) {
	p := newPages()
	now := time.Unix(1000, 0)
	key := func(i int) pageKey { return pageKey{byte(i), byte(i >> 8)} }
	for i := range 2 * maxPages {
		p.keep(key(i), make([]object, 10), now)
	}
	if p.kept.Len() != maxPages || p.items != 10*maxPages {
		t.Errorf("%d lists of %d objects are kept", p.kept.Len(), p.items)
	}
	p.keep(key(9999), make([]object, maxPageItems-5), now.Add(time.Minute))
	if p.items > maxPageItems {
		t.Errorf("%d objects are kept", p.items)
	}
	if _, ok := p.find(key(9999), now.Add(pageTTL+time.Second)); !ok {
		t.Error("a list of four minutes ago is gone")
	}
	if _, ok := p.find(key(9999), now.Add(pageTTL+2*time.Minute)); ok || p.items != 0 || p.kept.Len() != 0 {
		t.Errorf("what is too old is kept: %d lists of %d objects", p.kept.Len(), p.items)
	}
}
