package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// screen is the output of a log. Each write is one entry.
type screen struct {
	mu     sync.Mutex // guards the following fields
	writes []string
	err    error
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.writes = append(s.writes, string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (s *screen) Sync() error { return nil }

func (s *screen) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// said returns the messages of each write.
func (s *screen) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, w := range s.writes {
		var messages []string
		for line := range strings.Lines(w) {
			messages = append(messages, strings.TrimSpace(line[strings.LastIndexByte(line, '\t')+1:]))
		}
		all = append(all, strings.Join(messages, "+"))
	}
	return strings.Join(all, " ")
}

func newScreen(t *testing.T, o ...zap.Option) (*screen, *zap.Logger) {
	t.Helper()
	s := &screen{}
	log, err := Default().To(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, log.WithOptions(o...)
}

func TestConsecutiveLinesAreBatched(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(log, many *zap.Logger)
		want string
	}{
		"a line alone does not wait": {func(_, many *zap.Logger) { many.Info("a") }, "a"},
		"those that follow do":       {func(_, many *zap.Logger) { many.Info("a"); many.Info("b"); many.Info("c") }, "a"},
		"until the pause is over": {func(_, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			many.Info("c")
			time.Sleep(flushInterval + 1)
		}, "a b+c"},
		"and the next pause begins then": {func(_, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			time.Sleep(flushInterval + 1)
			many.Info("c")
		}, "a b"},
		"alone again": {func(_, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			time.Sleep(3 * flushInterval)
			many.Info("c")
		}, "a b c"},
		"an urgent line takes them along": {func(log, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			log.Warn("urgent")
			many.Info("c")
		}, "a b urgent"},
		"so does the end of the process": {func(log, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			defer func() { _ = recover() }()
			log.Fatal("fatal")
		}, "a b fatal"},
		"and Sync, also of the log that they came by": {func(_, many *zap.Logger) {
			many.Info("a")
			many.Info("b")
			_ = many.Sync()
		}, "a b"},
		"a level that is off": {func(_, many *zap.Logger) { many.Debug("a") }, ""},
		"named and with fields": {func(log, _ *zap.Logger) {
			many := Batched(log.With(zap.Int("n", 1)).Named("x"))
			many.Info("a")
			many.Info("b")
			_ = log.Sync()
		}, `{"n": 1} {"n": 1}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, log := newScreen(t, zap.WithFatalHook(zapcore.WriteThenPanic))
				c.do(log, Batched(log))
				synctest.Wait()
				if got := s.said(); got != c.want {
					t.Errorf("written messages = %q, want %q", got, c.want)
				}
				time.Sleep(3 * flushInterval) // no timer is left
			})
		})
	}
}

// The buffer is bounded, and no line is lost when it is full.
func TestLineBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newScreen(t)
		many, text := Batched(log), strings.Repeat("x", 1000)
		const lines = 200
		for range lines {
			many.Info(text)
		}
		if n := len(s.writes); n < 1+lines*1000/maxPending {
			t.Errorf("%d writes, want at least %d", n, 1+lines*1000/maxPending)
		}
		_ = log.Sync()
		total := 0
		for _, w := range s.writes {
			if len(w) > maxPending {
				t.Errorf("write of %d bytes, want at most %d", len(w), maxPending)
			}
			total += strings.Count(w, "\n") + 1
		}
		if total != lines {
			t.Errorf("%d lines were written, want %d", total, lines)
		}
		time.Sleep(3 * flushInterval)
	})
}

// With concurrent callers, each line is written whole and once, and the lines of one caller keep their order.
func TestEachLineIsWrittenOnce(t *testing.T) {
	s, log := newScreen(t)
	many := Batched(log)
	const callers, each = 8, 2000
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			to := many
			if c == 0 {
				to = log
			}
			for n := range each {
				to.Info(strconv.Itoa(c) + "-" + strconv.Itoa(n))
			}
		})
	}
	wg.Wait()
	if err := log.Sync(); err != nil {
		t.Error(err)
	}
	next := [callers]int{}
	for _, message := range strings.FieldsFunc(s.said(), func(r rune) bool { return r == ' ' || r == '+' }) {
		var c, n int
		if _, err := fmt.Sscanf(message, "%d-%d", &c, &n); err != nil || n != next[c] {
			t.Fatalf("message %q after %d lines of its caller, %v; want the next line", message, next[c], err)
		}
		next[c]++
	}
	for c, n := range next {
		if n != each {
			t.Errorf("%d lines of caller %d, want %d", n, c, each)
		}
	}
}

func TestDelayedWriteErrorIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &screen{}
		s, log := newScreen(t, zap.ErrorOutput(told))
		many := Batched(log)
		many.Info("a")
		many.Info("b")
		s.breaks(errors.New("no room"))
		time.Sleep(flushInterval + 1)
		synctest.Wait()
		s.breaks(nil)
		many.Info("c")
		if len(told.writes) != 1 || !strings.Contains(told.writes[0], "no room") {
			t.Errorf("reported write errors = %q, want one with \"no room\"", told.writes)
		}
		time.Sleep(3 * flushInterval)
		synctest.Wait()
		if got := s.said(); got != "a c" {
			t.Errorf("written messages = %q, want \"a c\"", got)
		}
	})
}

func TestUnbatchedLogWritesEachLineAtOnce(t *testing.T) {
	if Batched(nil) != nil {
		t.Error("Batched(nil) is not nil, want nil")
	}
	var out bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.InfoLevel))
	many := Batched(log)
	many.Info("a")
	many.Info("b")
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines were written at once, want 2", n)
	}
}

func TestLoggerWithIncreasedLevelBatchesLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newScreen(t)
		level := zap.NewAtomicLevelAt(zap.ErrorLevel)
		log = IncreaseLevel(log, level)
		many := Batched(log.With(zap.Int("n", 1)))
		log.Warn("a")
		many.Info("b")
		level.SetLevel(zap.InfoLevel)
		many.Info("c")
		many.Info("d")
		log.Info("e")
		log.Debug("f") // the level of the logger below
		if got, want := s.said(), `{"n": 1} {"n": 1} e`; got != want {
			t.Errorf("written messages = %q, want %q", got, want)
		}
		time.Sleep(3 * flushInterval)
	})
}
