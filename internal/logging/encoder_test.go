package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestE3EachEntryIsOneLine(t *testing.T) {
	const forged = "x\r\n2031-02-03T04:05:06.000Z\tINFO\tforged\x1b[31m\x00\u0085\x7f"
	long := strings.Repeat("y", 1<<20)
	for _, format := range []string{"console", "json"} {
		t.Run(format, func(t *testing.T) {
			encoder, err := Options{Format: format}.encoder()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.DebugLevel)).With(zap.String("with", forged))
			log.Info(forged, zap.String("text", forged), zap.Error(errors.New(forged)), zap.Any("any", []string{forged}), zap.Stringer("stringer", stringer(forged)))
			log.Info(long, zap.String("text", long), zap.Error(errors.New(long)), zap.Any("any", []string{long}), zap.Stringer("stringer", stringer(long)))
			text := out.String()
			if n := strings.Count(text, "\n"); n != 2 || !strings.HasSuffix(text, "\n") {
				t.Errorf("%d lines for two entries, want 2", n)
			}
			if strings.ContainsAny(text, "\r\x00\x1b") {
				t.Errorf("the output has a control character: %.500q, want none", text)
			}
			if len(text) > 8*maxFieldBytes {
				t.Errorf("output of %d bytes, want at most %d", len(text), 8*maxFieldBytes)
			}
		})
	}
}

func TestCallerFieldsAreNotChanged(t *testing.T) {
	long := strings.Repeat("y", maxFieldBytes+1)
	fields := []zap.Field{zap.String("text", long), zap.Int("n", 1)}
	encoder, err := Default().encoder()
	if err != nil {
		t.Fatal(err)
	}
	line, err := encoder.EncodeEntry(zapcore.Entry{Message: "m"}, fields)
	if err != nil || strings.Contains(line.String(), long) || !strings.Contains(line.String(), `"n": 1`) {
		t.Errorf("EncodeEntry = %v %s, want a shortened field and n", err, line)
	}
	if fields[0].String != long {
		t.Error("EncodeEntry changed the caller's field, want no change")
	}
}

func TestLinesBeginWithDateTimeAndZone(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 70_900_000, time.FixedZone("", -(3*3600+1800)))
	for format, want := range map[string]string{
		"console": "2031-02-03T04:05:06.070-03:30\tINFO\tm\n",
		"json":    `{"level":"info","ts":"2031-02-03T04:05:06.070-03:30","msg":"m"}` + "\n",
	} {
		encoder, err := Options{Format: format}.encoder()
		if err != nil {
			t.Fatal(err)
		}
		line, err := encoder.EncodeEntry(zapcore.Entry{Level: zap.InfoLevel, Time: at, Message: "m"}, nil)
		if err != nil || line.String() != want {
			t.Errorf("line in the format %s = %q, %v, want %q", format, line, err, want)
		}
		if line, err = encoder.EncodeEntry(zapcore.Entry{Time: at.UTC(), Message: "m"}, nil); err != nil || !strings.Contains(line.String(), "2031-02-03T07:35:06.070Z") {
			t.Errorf("line in the format %s = %q, %v, want the time in UTC with Z", format, line, err)
		}
	}
}

func TestTimeFieldsIncludeDate(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	far := time.Date(9999, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600)) // more nanoseconds than an integer has
	for _, format := range []string{"console", "json"} {
		encoder, err := Options{Format: format}.encoder()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.DebugLevel)).With(zap.Time("with", at))
		log.Info("m", zap.Time("expires", at), zap.Time("far", far))
		compact := strings.ReplaceAll(out.String(), `": "`, `":"`)
		for _, want := range []string{`"with":"2031-02-03T04:05:06Z"`, `"expires":"2031-02-03T04:05:06Z"`, `"far":"9999-02-03T04:05:06+01:00"`} {
			if !strings.Contains(compact, want) {
				t.Errorf("line in the format %s = %s, want %s", format, out.String(), want)
			}
		}
	}
}

func TestNonASCIITextIsNeitherEscapedNorSplit(t *testing.T) {
	if got := escaped("héllo 世界"); got != "héllo 世界" {
		t.Errorf("escaped = %q, want no change", got)
	}
	if got := bounded(strings.Repeat("世", maxFieldBytes)); strings.ContainsRune(got, '�') || len(got) > maxFieldBytes+3 {
		t.Errorf("bounded = %d bytes, want at most %d and whole characters", len(got), maxFieldBytes+3)
	}
}

type stringer string

func (s stringer) String() string { return fmt.Sprint(string(s)) }
