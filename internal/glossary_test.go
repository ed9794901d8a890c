package internal

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// glossary has words that were names here once and told nobody anything, with the words that Kubernetes, net/http or etcd
// have for the same. They are not to become names again: of files, packages, or anything that Go code declares.
var glossary = map[string]string{
	"abyss":      "black hole",
	"agenda":     "what is computed, such as probe schedule",
	"arena":      "server under test",
	"assault":    "attack",
	"board":      "metrics cache",
	"chronicle":  "history",
	"council":    "replica verdicts",
	"crowd":      "clients, load generator",
	"custodian":  "cleaner",
	"damper":     "debouncer",
	"diary":      "times, log",
	"discreet":   "redacting",
	"door":       "front door, server, subresource",
	"errand":     "task",
	"estate":     "test environment",
	"expendable": "victim",
	"farewell":   "GOAWAY",
	"fate":       "error class",
	"frugal":     "interning codec",
	"herald":     "event recorder",
	"horizon":    "compact revision",
	"house":      "front door, server, code base",
	"intake":     "read limiter",
	"journey":    "attempts",
	"keeper":     "what it keeps: seat timer, document store",
	"knocker":    "request sender",
	"ladder":     "level tracker",
	"landlord":   "server",
	"lane":       "connection pool",
	"leash":      "upstream context",
	"leaver":     "disconnected client",
	"ledger":     "store, cleanup debts",
	"legible":    "valid UTF-8",
	"muster":     "list, collect",
	"notary":     "recording authorizer, signer",
	"office":     "process, environment",
	"outlet":     "sink",
	"overhear":   "drain",
	"parcel":     "message, part",
	"parley":     "handshake",
	"payer":      "debt cleaner",
	"posse":      "workers",
	"reliever":   "closer",
	"roomy":      "unlimited",
	"rota":       "timer queue",
	"rouse":      "wake",
	"scene":      "request context",
	"scribe":     "status writer",
	"sea":        "test server",
	"shelf":      "storage factory",
	"steward":    "controller",
	"stillborn":  "closed at once",
	"stranger":   "unauthenticated client",
	"surgeon":    "doctor, repair",
	"testimony":  "recording observer",
	"thief":      "other client",
	"tidings":    "events",
	"town":       "test environment",
	"unconsumed": "unprocessed",
	"vigil":      "timeout sweeper",
	"visitor":    "user",
	"waive":      "remove the finalizer",
	"witness":    "observer",
	"world":      "test environment",
	"yard":       "environment",
}

// notInProse are the words of the glossary that comments, strings and documentation do not use either. The others have an ordinary meaning.
var notInProse = map[string]bool{
	"abyss": true, "crowd": true, "custodian": true, "damper": true, "diary": true, "door": true, "errand": true, "farewell": true,
	"herald": true, "house": true, "keeper": true, "knocker": true, "lane": true, "leash": true, "ledger": true,
	"muster": true, "notary": true, "outlet": true, "parley": true, "payer": true, "posse": true, "reliever": true, "rota": true,
	"scribe": true, "steward": true, "stillborn": true, "testimony": true, "tidings": true, "vigil": true, "yard": true,
}

// coinedIdentifiers are whole names that were replaced, in lower case. Their words are ordinary ones.
var coinedIdentifiers = map[string]string{
	"asitis":           "plainByte",
	"backendkeepsseat": "backendSeatHold",
	"bombat":           "bombFactor",
	"byebroken":        "goAwayError",
	"byegone":          "goAwayClosed",
	"byeparted":        "goAwayDrained",
	"byestaying":       "goAwayNone",
	"byetold":          "goAwayWarned",
	"calmlooks":        "unusedPingEvery",
	"carrytrace":       "injectTrace",
	"complainevery":    "failureLogInterval",
	"earlywarnings":    "authWarnings",
	"errcrowded":       "errTooManyStreams",
	"errfellsilent":    "errPingsUnanswered",
	"errgivenup":       "errAnsweredLate",
	"errmanybodies":    "errBodyMemory",
	"errmute":          "errNoSettings",
	"errparted":        "errShutdown",
	"errshed":          "errLowMemory",
	"errtoomuchtalk":   "errTooManyControlFrames",
	"floodat":          "maxReplies",
	"fullat":           "maxBuffered",
	"giveupseat":       "releaseSeat",
	"gonowhere":        "refusingTransport",
	"greettimeout":     "PrefaceTimeout",
	"guidecollector":   "SetMemoryLimit",
	"headshaped":       "writeConvertedHeader",
	"heldbyrequest":    "RequestOverhead",
	"keepevery":        "ensureInterval",
	"lastwords":        "shutdownTimeout",
	"leastheld":        "MinConnMemory",
	"leasttaken":       "minProgress",
	"lookevery":        "checkInterval",
	"maxwhole":         "maxBufferedBody",
	"maybetrailer":     "ValidTrailer",
	"mostheard":        "maxDrain",
	"mostsaved":        "maxSavedUpdates",
	"partingsilence":   "lingerIdle",
	"partingtime":      "lingerTimeout",
	"quickenough":      "fastClientBytes",
	"refuseturn":       "tooManyRequests",
	"relayshaped":      "relayConverted",
	"saygoaway":        "sendGoAway",
	"saywithin":        "writeTimeout",
	"seatthosewhowait": "dispatch",
	"slowpatience":     "slowTimeout",
	"spareofcancelled": "allowancePerCancel",
	"spareperlook":     "allowancePerCheck",
	"tellevery":        "updateInterval",
	"tellturn":         "setFlowHeaders",
	"turnsfilter":      "fairnessFilter",
	"withhonestbody":   "limitLocalBody",
}

// Names are split into their words, so that newLane and lane_test.go have the word lane, and planet has not.
func TestGlossary(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	checked := 0
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if strings.Contains(name, "testdata/") {
			continue // what others wrote, or recorded
		}
		for _, found := range coinedWords(name) {
			t.Errorf("%s: a file is not called %q, but %s", name, found, glossary[found])
		}
		code, page := filepath.Ext(name) == ".go", filepath.Ext(name) == ".md" && name != "CHANGELOG.md"
		if !code && !page || strings.HasPrefix(filepath.Base(name), "zz_generated") || name == "internal/glossary_test.go" {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if page {
			for number, line := range strings.Split(string(source), "\n") {
				checkProse(t, fmt.Sprintf("%s:%d", name, number+1), line)
			}
			continue
		}
		checked++
		checkCode(t, name, source)
	}
	if checked == 0 {
		t.Fatal("no Go file was checked")
	}
}

func checkCode(t *testing.T, name string, source []byte) {
	t.Helper()
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	said := map[string]bool{}
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return
		case tok == token.COMMENT:
			checkProse(t, files.Position(pos).String(), literal)
		case tok == token.STRING:
			checkProse(t, files.Position(pos).String(), literal)
		case tok == token.IDENT && !said[literal]:
			if word, coined := coinedIdentifiers[strings.ToLower(literal)]; coined {
				said[literal] = true
				t.Errorf("%s: %s: the word for it is: %s", files.Position(pos), literal, word)
			}
			for _, found := range coinedWords(literal) {
				said[literal] = true
				t.Errorf("%s: %s: the word for %q is: %s", files.Position(pos), literal, found, glossary[found])
			}
		}
	}
}

func checkProse(t *testing.T, where, text string) {
	t.Helper()
	for _, found := range coinedWords("front " + text) { // the line before may end so
		if notInProse[found] {
			t.Errorf("%s: the word for %q is: %s", where, found, glossary[found])
		}
	}
}

// coinedWords returns the words of a name or text that are in the glossary, in the singular too. A door is one only if it is no
// front door.
func coinedWords(text string) (found []string) {
	last := ""
	for _, word := range splitName(text) {
		if last == "front" && strings.HasPrefix(word, "door") {
			last = word
			continue
		}
		last = word
		for _, form := range []string{word, strings.TrimSuffix(word, "s")} {
			if _, ok := glossary[form]; ok {
				found = append(found, form)
				break
			}
		}
	}
	return found
}

// splitName splits at what is no letter, before a capital that follows a small letter, and before one that a small letter follows.
func splitName(name string) []string {
	var spaced bytes.Buffer
	runes := []rune(name)
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins || !unicode.IsLetter(r) {
			spaced.WriteByte(' ')
		}
		if unicode.IsLetter(r) {
			spaced.WriteRune(unicode.ToLower(r))
		}
	}
	return strings.Fields(spaced.String())
}

func TestGlossarySplitsNames(t *testing.T) {
	for name, want := range map[string]string{
		"newLane": "lane", "internal/transport/lane_test.go": "lane", "planet": "", "Lanes": "lane", "httpLane2": "lane", "yardstick": "",
		"FrontDoor": "", "BehindAFrontDoor": "", "openDoor": "door", "// the front\n// door": "", "e2e/frontdoor_test.go": "",
	} {
		if got := strings.Join(coinedWords(name), " "); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
