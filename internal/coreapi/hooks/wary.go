package hooks

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the most that a webhook may answer, in bytes. A conversion answers with all the objects of a list; an
// admission webhook needs a fraction of this.
const maxAnswer = 64 << 20

// wary is a way to a webhook that follows no redirect and reads no answer without end. Whoever may write a webhook's
// configuration could otherwise make this server ask anything of anybody, in its own network (CVE-2020-8561), or fill its
// memory until the call times out (attack row C13).
type wary struct {
	to http.RoundTripper
}

func (w wary) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close() // nobody reads it
		return nil, fmt.Errorf("the webhook answered with a redirect (%d), which is not followed; give its own address", answer.StatusCode)
	}
	answer.Body = &bounded{answer.Body, maxAnswer}
	return answer, nil
}

// WrappedRoundTripper is how the library finds the transport below, to close what is idle.
func (w wary) WrappedRoundTripper() http.RoundTripper { return w.to }

// bounded fails where io.LimitReader would end: half an answer must not be taken for a whole one.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the webhook answered with more than %d bytes", int64(maxAnswer))
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}
