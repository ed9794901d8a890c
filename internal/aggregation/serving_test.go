package aggregation

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"portico.dev/internal/logging"
)

// testServing returns valid settings.
func testServing() Serving {
	s := DefaultServing()
	s.ShutdownGrace = time.Second
	return s
}

func TestInvalidSettingsAreReportedByTheirFlag(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Serving)
		want   []string
	}{
		"defaults":                 {func(*Serving) {}, nil},
		"every address":            {func(s *Serving) { s.BindAddress = "::" }, nil},
		"host name":                {func(s *Serving) { s.BindAddress = "localhost" }, []string{"bind-address"}},
		"free port":                {func(s *Serving) { s.SecurePort = 0 }, nil},
		"negative port":            {func(s *Serving) { s.SecurePort = -1 }, []string{"secure-port"}},
		"port beyond 16 bits":      {func(s *Serving) { s.SecurePort = 65536 }, []string{"secure-port"}},
		"no request timeout":       {func(s *Serving) { s.RequestTimeout = 0 }, []string{"request-timeout"}},
		"negative request timeout": {func(s *Serving) { s.RequestTimeout = -time.Second }, []string{"request-timeout"}},
		"highest GOAWAY chance":    {func(s *Serving) { s.GoawayChance = 0.02 }, nil},
		"GOAWAY chance too high":   {func(s *Serving) { s.GoawayChance = 0.021 }, []string{"goaway-chance"}},
		"negative GOAWAY chance":   {func(s *Serving) { s.GoawayChance = -0.01 }, []string{"goaway-chance"}},
		"GOAWAY chance NaN":        {func(s *Serving) { s.GoawayChance = math.NaN() }, []string{"goaway-chance"}},
		"no shutdown delay":        {func(s *Serving) { s.ShutdownDelay = 0 }, nil},
		"negative shutdown delay":  {func(s *Serving) { s.ShutdownDelay = -1 }, []string{"shutdown-delay-duration"}},
		"no shutdown grace":        {func(s *Serving) { s.ShutdownGrace = 0 }, []string{"grace"}},
		"memory limit off":         {func(s *Serving) { s.MemoryLimit = "0" }, nil},
		"memory limit":             {func(s *Serving) { s.MemoryLimit = "2Gi" }, nil},
		"memory limit too small":   {func(s *Serving) { s.MemoryLimit = "64Mi" }, []string{"memory-limit"}},
		"negative memory limit":    {func(s *Serving) { s.MemoryLimit = "-2Gi" }, []string{"memory-limit"}},
		"memory limit of words":    {func(s *Serving) { s.MemoryLimit = "much" }, []string{"memory-limit"}},
		"unlimited requests":       {func(s *Serving) { s.MaxRequestsInFlight, s.MaxMutatingRequestsInFlight = -1, -1 }, nil},
		"negative rotation":        {func(s *Serving) { s.AccessLogFile.MaxAge, s.AccessLogFile.MaxSize = -1, -1 }, []string{"access-log-maxage", "access-log-maxsize"}},
		"two mistakes":             {func(s *Serving) { s.BindAddress, s.SecurePort = "x", 70000 }, []string{"bind-address", "secure-port"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testServing()
			test.change(&s)
			var got []string
			var errs []error
			s.Validate("grace", func(flag, format string, args ...any) {
				got, errs = append(got, flag), append(errs, fmt.Errorf(format, args...))
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("Validate reports %q (%v), want %q", got, errors.Join(errs...), test.want)
			}
		})
	}
}

func TestServingFlagsSetEverySetting(t *testing.T) {
	s := testServing()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddListenFlags(fs, "grace")
	s.AddRequestFlags(fs)
	s.AddEngineFlags(fs)
	if err := fs.Parse(strings.Fields("--bind-address=::1 --secure-port=1 --shutdown-delay-duration=2s --grace=3s --enable-aggregator-routing=false --zone=z " +
		"--request-timeout=4s --memory-limit=2Gi --goaway-chance=0.01 --access-log=a.log --access-log-maxage=7 --access-log-maxbackup=8 --access-log-maxsize=9 --access-log-compress --http-engine=library --backend-engine=library")); err != nil {
		t.Fatal(err)
	}
	want := Serving{
		BindAddress: "::1", SecurePort: 1, ShutdownDelay: 2 * time.Second, ShutdownGrace: 3 * time.Second, Zone: "z", RequestTimeout: 4 * time.Second,
		MemoryLimit: "2Gi", GoawayChance: 0.01, AccessLog: true, HTTPEngine: "library", BackendEngine: "library",
		MaxRequestsInFlight: 400, MaxMutatingRequestsInFlight: 200,
		AccessLogFile: logging.File{Path: "a.log", MaxAge: 7, MaxBackups: 8, MaxSize: 9, Compress: true},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("settings = %+v, want %+v", s, want)
	}
}

func TestListenErrorNamesPortInUse(t *testing.T) {
	s := testServing()
	s.BindAddress = "127.0.0.1"
	first, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := fmt.Sscanf(first.Addr().String(), "127.0.0.1:%d", &s.SecurePort); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), first.Addr().String()+" is in use by another process") {
		t.Errorf("second Listen = %v, want an error that names %s", err, first.Addr())
	}
}

func TestMissingEgressSelectorFileIsReportedByItsFlag(t *testing.T) {
	s := testServing()
	s.EgressSelectorConfigFile = filepath.Join(t.TempDir(), "absent")
	if _, err := NewBase(s, zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), "--egress-selector-config-file: ") {
		t.Errorf("NewBase = %v, want an error of --egress-selector-config-file", err)
	}
}

func TestAccessLogThatCannotBeOpenedIsReportedByItsFlag(t *testing.T) {
	s := testServing()
	s.AccessLog, s.AccessLogFile.Path = true, filepath.Join(t.TempDir(), "absent", "access.log")
	if _, err := NewBase(s, zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), "--access-log: ") {
		t.Errorf("NewBase = %v, want an error of --access-log", err)
	}
	s.AccessLog = false
	if _, err := NewBase(s, zap.NewNop()); err != nil {
		t.Errorf("NewBase without an access log = %v, want no error", err)
	}
}

func TestMemoryLimitOfZeroTurnsOverloadOff(t *testing.T) {
	s := testServing()
	for limit, want := range map[string]bool{"0": false, "1Gi": true} {
		s.MemoryLimit = limit
		b, err := NewBase(s, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Overload != nil; got != want {
			t.Errorf("--memory-limit=%s: has a monitor = %t, want %t", limit, got, want)
		}
	}
}
