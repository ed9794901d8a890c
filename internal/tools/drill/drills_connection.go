package drill

import (
	"context"
	"time"

	"portico.dev/internal/tools/drill/faulty"
)

// connectionDrills returns the drills in which an extension server, or the network path to it, stops responding.
func connectionDrills() []Drill {
	return []Drill{
		{
			Name: "refuse", Title: "the process is gone: connections are refused, and those that were there are reset",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: brokenBy(faulty.Refuse, 20*time.Second),
			Expect: []Expectation{
				detectedWithin(5 * time.Second), conditionSays("connection refused"), failsWith("503", "broken off", "no answer"),
				failsFast(2 * time.Second), namesTheFailed(), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "blackhole", Title: "the network swallows every byte, in both directions, on old and new connections",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: brokenBy(faulty.Blackhole, 25*time.Second),
			Expect: []Expectation{
				// Detection takes 3 s. The limit is more than twice that, because the front door counts only the time
				// in which it runs, and the machine may be busy.
				detectedWithin(8 * time.Second), failsWith("503", "504", "broken off", "no answer"),
				failsFast(5 * time.Second), namesTheFailed(), recoversWithin(10 * time.Second),
			},
		},
		{
			Name: "hang", Title: "requests are accepted and never answered, while pings are",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: brokenBy(faulty.Hang, 25*time.Second),
			Expect: []Expectation{
				// Detection takes 3.5 s of silence, long enough for a slow server to respond.
				detectedWithin(8 * time.Second), failsWith("429", "503", "504"), failsFast(5 * time.Second), namesTheFailed(),
				recoversWithin(10 * time.Second),
			},
		},
		{
			Name: "stopped-process", Title: "the process is stopped; its kernel still accepts connections",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true, OwnProcess: true,
			script: brokenBy(faulty.Stopped, 25*time.Second),
			Expect: []Expectation{
				// Detection takes 2.5 s. The limit is more than twice that, because the machine may be busy.
				detectedWithin(8 * time.Second), failsWith("503"), verdictEndsWaiting(time.Second), failsFast(2 * time.Second), namesTheFailed(),
				recoversWithin(10 * time.Second),
			},
		},
		{
			Name: "slow-drip", Title: "answers come a byte at a time",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: faultDuration(faulty.SlowDrip, 8*time.Second),
			Expect: []Expectation{namesTheFailed(), recoversWithin(10 * time.Second)},
		},
		{
			Name: "slow-loris-backend", Title: "every byte takes 0.2 s, those of the handshake and of headers too",
			About: 12 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: brokenBy(faulty.Trickle, 20*time.Second),
			Expect: []Expectation{
				detectedWithin(12 * time.Second), failsWith("429", "503", "504", "broken off", "no answer"), namesTheFailed(),
				recoversWithin(10 * time.Second),
			},
		},
		{
			Name: "reset-mid-body", Title: "every answer is broken off in the middle",
			About: 8 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: faultDuration(faulty.ResetMidBody, 4*time.Second),
			Expect: []Expectation{failsWith("broken off", "no answer", "502", "503"), namesTheFailed(), recoversWithin(5 * time.Second)},
		},
		{
			Name: "goaway-storm", Title: "every connection is ended with GOAWAY after ten requests",
			About: 8 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: faultDuration(faulty.GoAwayStorm, 5*time.Second),
			Expect: []Expectation{
				staysAvailable(), subjectUnaffected("get", "list", "create", "delete"), recoversWithin(5 * time.Second),
			},
		},
		{
			Name: "flapping", Title: "the process dies and comes back, over and over, twice a second",
			About: 12 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: flap,
			Expect: []Expectation{transitionsAtMost(2*flapCount + 2), namesTheFailed(), recoversWithin(10 * time.Second)},
		},
	}
}

const (
	flapCount = 8
	flapEvery = 250 * time.Millisecond
)

func flap(ctx context.Context, s *Stage) error {
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	for range flapCount {
		for _, f := range []faulty.Fault{faulty.Refuse, faulty.Healthy} {
			if err := s.runFault(f); err != nil {
				return err
			}
			if err := s.wait(ctx, flapEvery); err != nil {
				return err
			}
		}
	}
	return s.mend(ctx)
}

// certificateDrills returns the drills in which an extension server presents a certificate that must be rejected.
func certificateDrills() []Drill {
	certificate := func(name, title string, f faulty.Fault, says ...string) Drill {
		return Drill{
			Name: name, Title: title, About: 8 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: brokenBy(f, 20*time.Second),
			Expect: []Expectation{
				detectedWithin(5 * time.Second), conditionSays(says...), failsWith("503", "broken off", "no answer"),
				failsFast(2 * time.Second), namesTheFailed(), recoversWithin(5 * time.Second),
			},
		}
	}
	return []Drill{
		certificate("expired-certificate", "the serving certificate has expired", faulty.ExpiredCertificate, "has expired"),
		certificate("wrong-ca", "the serving certificate is from an authority that spec.caBundle does not hold",
			faulty.WrongAuthority, "unknown authority"),
		{
			Name: "certificate-rotation", Title: "the authority of the serving certificate is replaced: trusted, used, and the old one removed",
			About: 10 * time.Second, Limit: 90 * time.Second, Stores: true,
			script: rotateCertificate,
			Expect: []Expectation{subjectUnaffected("get", "list", "create", "delete"), staysAvailable(), recoversWithin(5 * time.Second)},
		},
		certificate("wrong-name", "the serving certificate is for another name", faulty.WrongName, "is valid for", "not valid for"),
	}
}
