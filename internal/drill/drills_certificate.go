package drill

import (
	"time"

	"portico.dev/internal/drill/faulty"
)

// certificateDrills are about an extension server that must not be believed to be itself.
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
		certificate("wrong-name", "the serving certificate is for another name", faulty.WrongName, "is valid for", "not valid for"),
	}
}
