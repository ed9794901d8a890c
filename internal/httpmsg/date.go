package httpmsg

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Clock is the date as headers have it, made once a second.
type Clock struct{ last atomic.Pointer[dated] }

type dated struct {
	second int64
	text   string
}

// Date is the value of the header Date.
func (c *Clock) Date() string {
	now := time.Now()
	second := now.Unix()
	if d := c.last.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dated{second, now.UTC().Format(http.TimeFormat)}
	c.last.Store(d)
	return d.text
}
