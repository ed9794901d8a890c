package network

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const testLatency = 10 * time.Millisecond

// pair is a network with two hosts and a connection from the first to the second.
type pair struct {
	*Network
	a, b      *Host
	listener  net.Listener
	near, far net.Conn
}

// newPair returns a pair. Its connection is closed at the end of the test.
func newPair(t *testing.T, l Link) *pair {
	t.Helper()
	n := New(1, l)
	p := &pair{Network: n, a: n.Host("10.0.0.1"), b: n.Host("10.0.0.2")}
	var err error
	if p.listener, err = p.b.Listen(80); err != nil {
		t.Fatal(err)
	}
	if p.near, err = p.a.Dial(t.Context(), "10.0.0.2:80"); err != nil {
		t.Fatal(err)
	}
	if p.far, err = p.listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = p.near.Close(), p.far.Close(), p.listener.Close() })
	return p
}

// inBubble runs a test with a pair in a bubble.
func inBubble(t *testing.T, f func(*testing.T, *pair)) {
	synctest.Test(t, func(t *testing.T) { f(t, newPair(t, Link{Latency: testLatency})) })
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("Write(%q): %v", text, err)
	}
}

// wantRead reads a text.
func wantRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q (%v), want %q", got[:n], err, want)
	}
}

// wantEnd reads until an error.
func wantEnd(t *testing.T, c net.Conn, want error) {
	t.Helper()
	if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, want) {
		t.Fatalf("Read = %d, %v, want %v", n, err, want)
	}
}

func wantAfter(t *testing.T, began time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(began); got != want {
		t.Fatalf("it happened after %s, want %s", got, want)
	}
}

func wantOpen(t *testing.T, p *pair, want int) {
	t.Helper()
	if got := p.Open(p.a, p.b); got != want {
		t.Fatalf("Open = %d, want %d", got, want)
	}
}

func TestDialTakesARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		newPair(t, Link{Latency: testLatency})
		wantAfter(t, began, 2*testLatency)
	})
}

func TestDialOfAClosedPortIsRefusedAfterARoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		if _, err := p.a.Dial(t.Context(), "10.0.0.2:81"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("Dial: got %v, want ECONNREFUSED", err)
		}
		wantAfter(t, began, 2*testLatency)
	})
}

func TestDialOfABlockedHostTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.b, p.a, true)
		began := time.Now()
		_, err := p.a.Dial(t.Context(), "10.0.0.2:80")
		var timeout net.Error
		if !errors.Is(err, syscall.ETIMEDOUT) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("Dial: got %v, want ETIMEDOUT", err)
		}
		wantAfter(t, began, connectTimeout)
	})
}

func TestDialOfABlockedHostSucceedsAfterHeal(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.a, p.b, true)
		time.AfterFunc(1500*time.Millisecond, p.Heal)
		began := time.Now()
		c, err := p.a.Dial(t.Context(), "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		wantAfter(t, began, 3*time.Second+2*testLatency)
		_ = c.Close()
	})
}

func TestCancelledDialLeavesNoConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_, _ = p.near.Close(), p.far.Close()
		for _, after := range []time.Duration{0, testLatency, 2*testLatency - 1} {
			ctx, cancel := context.WithCancel(t.Context())
			if after == 0 {
				cancel()
			}
			time.AfterFunc(after, cancel)
			began := time.Now()
			if _, err := p.a.Dial(ctx, "10.0.0.2:80"); !errors.Is(err, context.Canceled) {
				t.Fatalf("Dial: got %v, want context.Canceled", err)
			}
			wantAfter(t, began, after)
			time.Sleep(time.Second)
			wantOpen(t, p, 0)
		}
	})
}

func TestDialEndsAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.b.PowerOff()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := p.a.Dial(ctx, "10.0.0.2:80")
		var timeout net.Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("Dial: got %v, want a timeout", err)
		}
	})
}

func TestDialDoesNotSurviveItsProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		time.AfterFunc(testLatency, func() { p.a.Kill(); p.a.Boot() })
		if c, err := p.a.Dial(t.Context(), "10.0.0.2:80"); err == nil {
			t.Fatalf("Dial = %v, want an error", c)
		}
	})
}

func TestFullBacklogDelaysDials(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		for range backlog {
			c, err := p.a.Dial(t.Context(), "10.0.0.2:80")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.a.Dial(ctx, "10.0.0.2:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Dial: got %v, want a timeout", err)
		}
		wantOpen(t, p, backlog+1)
	})
}

func TestClosedListenerResetsWaitingConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		c, err := p.a.Dial(t.Context(), "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error)
		other, err := p.b.Listen(0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, err := other.Accept(); accepted <- err }()
		synctest.Wait()
		_, _ = other.Close(), p.listener.Close()
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("Accept: got %v, want ErrClosed", err)
		}
		wantEnd(t, c, syscall.ECONNRESET)
		_ = c.Close()
		wantOpen(t, p, 1)
		again, err := p.b.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Close()
	})
}

func TestPortInUseIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		if _, err := p.b.Listen(80); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("Listen: got %v, want EADDRINUSE", err)
		}
	})
}

func TestBlockLosesDataInFlightUntilHeal(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		write(t, p.near, "first")
		time.Sleep(testLatency / 2)
		p.Block(p.a, p.b, true)
		write(t, p.near, "second")
		time.Sleep(time.Second)
		p.Block(p.a, p.b, false)
		wantRead(t, p.far, "firstsecond")
		wantAfter(t, began, testLatency/2+time.Second+retransmission+testLatency)
	})
}

func TestOneWayBlockDoesNotStopTheOtherWay(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.a, p.b, true)
		write(t, p.far, "hello")
		wantRead(t, p.near, "hello")
	})
}

func TestOneWayBlockEndsSenderAfterUnackedTimeout(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		inBubble(t, func(t *testing.T, p *pair) {
			if reverse { // the data arrives and is read, but the acknowledgment is lost
				p.Block(p.b, p.a, true)
				go func() { _, _ = io.Copy(io.Discard, p.far) }()
			} else {
				p.Block(p.a, p.b, true)
			}
			began := time.Now()
			write(t, p.near, "hello")
			wantEnd(t, p.near, syscall.ETIMEDOUT)
			wantAfter(t, began, unackedTimeout)
			wantOpen(t, p, 1)
		})
	}
}

func TestAcknowledgedDataHasNoTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.near, "hello")
		time.Sleep(2 * testLatency)
		p.Block(p.a, p.b, true)
		time.Sleep(keepAlive - time.Second)
		p.Block(p.a, p.b, false)
		wantRead(t, p.far, "hello") // it was not read before, but had arrived
		write(t, p.far, "hello")
		wantRead(t, p.near, "hello")
	})
}

func TestBlockEndsIdleConnectionsAfterKeepAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.a, p.b, true)
		began := time.Now()
		wantEnd(t, p.near, syscall.ETIMEDOUT)
		wantAfter(t, began, keepAlive)
		wantOpen(t, p, 1)
		wantEnd(t, p.far, syscall.ETIMEDOUT)
		wantAfter(t, began, acceptedKeepAlive)
		wantOpen(t, p, 0)
	})
}

func TestTimedOutSideResetsTheOtherAfterHeal(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.a, p.b, true)
		write(t, p.near, "lost")
		wantEnd(t, p.near, syscall.ETIMEDOUT)
		p.Heal()
		wantEnd(t, p.far, syscall.ECONNRESET)
		wantOpen(t, p, 0)
	})
}

func TestClosedSideGivesUpWhileBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.a, p.b, true)
		write(t, p.near, "lost")
		_ = p.near.Close()
		time.Sleep(2 * unackedTimeout)
		p.Heal()
		wantEnd(t, p.far, syscall.ECONNRESET)
		wantOpen(t, p, 0)
	})
}

func TestResetEndsBothSides(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Reset(p.b, p.a)
		wantEnd(t, p.near, syscall.ECONNRESET)
		wantEnd(t, p.far, syscall.ECONNRESET)
		wantOpen(t, p, 0)
	})
}

func TestKillResetsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.far, "sent before")
		began := time.Now()
		p.b.Kill()
		wantEnd(t, p.far, net.ErrClosed)
		wantRead(t, p.near, "sent before")
		wantEnd(t, p.near, syscall.ECONNRESET)
		wantAfter(t, began, testLatency)
		if _, err := p.a.Dial(t.Context(), "10.0.0.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial of a killed host: got %v, want ECONNREFUSED", err)
		}
		if _, err := p.b.Dial(t.Context(), "10.0.0.1:80"); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("Dial from a killed host: got %v, want EHOSTUNREACH", err)
		}
		if _, err := p.b.Listen(80); !errors.Is(err, syscall.ENETDOWN) {
			t.Errorf("Listen on a killed host: got %v, want ENETDOWN", err)
		}
		p.b.Boot()
		l, err := p.b.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		wantOpen(t, p, 0)
	})
}

func TestKillBehindABlockResetsAfterHeal(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.Block(p.b, p.a, true)
		began := time.Now()
		p.b.Kill()
		time.AfterFunc(time.Second, p.Heal)
		wantEnd(t, p.near, syscall.ECONNRESET)
		wantAfter(t, began, time.Second+retransmission+testLatency)
	})
}

func TestPowerOffLeavesOtherSideHalfOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.far, "lost")
		began := time.Now()
		p.b.PowerOff()
		wantEnd(t, p.far, net.ErrClosed)
		time.Sleep(keepAlive - time.Second)
		wantOpen(t, p, 1)
		wantEnd(t, p.near, syscall.ETIMEDOUT)
		wantAfter(t, began, keepAlive)
		wantOpen(t, p, 0)
	})
}

func TestBootResetsConnectionsFromBeforePowerOff(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.b.PowerOff()
		write(t, p.near, "lost")
		time.Sleep(time.Second)
		began := time.Now()
		p.b.Boot()
		wantEnd(t, p.near, syscall.ECONNRESET)
		wantAfter(t, began, retransmission+testLatency)
		wantOpen(t, p, 0)
	})
}

func TestFrozenHostAcceptsButDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.b.Freeze()
		c, err := p.a.Dial(t.Context(), "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var work sync.WaitGroup
		defer work.Wait()
		defer c.Close()
		work.Go(func() {
			accepted, err := p.listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(accepted, accepted)
			_ = accepted.Close()
		})
		write(t, c, "hello") // it is acknowledged, so there is no timeout
		write(t, p.near, "hello")
		time.AfterFunc(time.Minute, p.b.Thaw)
		wantRead(t, c, "hello")
		wantAfter(t, began, time.Minute+testLatency)
		wantRead(t, p.far, "hello")
	})
}

func TestFrozenHostSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.b.Freeze()
		began := time.Now()
		time.AfterFunc(time.Minute, p.b.Thaw)
		dialed := make(chan time.Duration)
		go func() {
			if _, err := p.b.Dial(t.Context(), "10.0.0.1:80"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("Dial: got %v, want ECONNREFUSED", err)
			}
			dialed <- time.Since(began)
		}()
		write(t, p.far, "late")
		_ = p.far.Close()
		wantRead(t, p.near, "late")
		wantEnd(t, p.near, io.EOF)
		wantAfter(t, began, time.Minute+retransmission+testLatency)
		if got, want := <-dialed, time.Minute+2*testLatency; got != want {
			t.Errorf("Dial ended after %s, want %s", got, want)
		}
	})
}

func TestKillEndsFreeze(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		p.b.Freeze()
		p.b.Kill()
		wantEnd(t, p.near, syscall.ECONNRESET)
		p.b.Boot()
		l, err := p.b.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := p.a.Dial(t.Context(), "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		write(t, accepted, "hello")
		wantRead(t, c, "hello")
		_ = accepted.Close()
	})
}

func TestLossDelaysAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Link{Latency: testLatency, Jitter: testLatency, Loss: 0.3})
		began, want := time.Now(), make([]byte, 200)
		for i := range want {
			want[i] = byte(i)
			write(t, p.near, string(want[i:i+1]))
		}
		wantRead(t, p.far, string(want))
		if got := time.Since(began); got < testLatency+retransmission {
			t.Errorf("200 writes with 30%% loss arrived after %s, want at least %s", got, testLatency+retransmission)
		}
	})
}

// arrivals returns the time at which each of several connections from different hosts gets each byte.
func arrivals(t *testing.T, seed uint64, order []int) [][]time.Duration {
	times := make([][]time.Duration, len(order))
	synctest.Test(t, func(t *testing.T) {
		n := New(seed, Link{Latency: testLatency, Jitter: testLatency, Loss: 0.1})
		hosts := []*Host{n.Host("10.0.0.1"), n.Host("10.0.0.2"), n.Host("10.0.0.3")}
		to := n.Host("10.0.1.1")
		l, err := to.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var work sync.WaitGroup
		for _, i := range order {
			work.Go(func() {
				c, err := hosts[i].Dial(t.Context(), "10.0.1.1:80")
				if err != nil {
					t.Error(err)
					return
				}
				write(t, c, string(byte(i)))
				for range 20 {
					time.Sleep(testLatency)
					write(t, c, "x")
				}
				_ = c.Close()
			})
			work.Go(func() {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				var got [1]byte
				if _, err := io.ReadFull(c, got[:]); err != nil {
					t.Error(err)
					return
				}
				from := got[0]
				for err == nil {
					times[from] = append(times[from], time.Since(began))
					_, err = io.ReadFull(c, got[:])
				}
			})
		}
		work.Wait()
		_ = l.Close()
	})
	return times
}

func TestDelaysDependOnlyOnSeed(t *testing.T) {
	same := func(a, b [][]time.Duration) bool { return slices.EqualFunc(a, b, slices.Equal) }
	first := arrivals(t, 1, []int{0, 1, 2})
	if again := arrivals(t, 1, []int{2, 0, 1}); !same(first, again) {
		t.Errorf("arrivals in another order of goroutines: got %v, want %v", again, first)
	}
	if other := arrivals(t, 2, []int{0, 1, 2}); same(first, other) {
		t.Errorf("arrivals with another seed: got %v, want others", other)
	}
}
