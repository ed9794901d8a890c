package durability

import (
	"crypto/tls"
	"errors"
	"net/http"
	"testing"
	"time"
)

// A front door whose clock is changed while it serves reports only the new time, and the right one when the clock is set back.
func TestSetClock(t *testing.T) {
	d := newFrontDoor(t)
	d.start()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: requestTimeout}
	defer client.CloseIdleConnections()
	for _, ahead := range []time.Duration{time.Hour, -40 * time.Second, 0} {
		if err := d.process.SetClock(ahead); errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		resp, err := client.Get("https://" + d.address() + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			t.Fatal(err)
		}
		if date.Before(asked.Add(ahead-2*time.Second)) || date.After(time.Now().Add(ahead+time.Second)) {
			t.Errorf("Date of a front door whose clock is %s ahead = %s at %s, want the changed time", ahead, date, asked)
		}
	}
}
