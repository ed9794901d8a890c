package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/e2e/compat"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// runner runs a server again and again at one address.
type runner interface {
	start(t *testing.T)
	stop(t *testing.T)
}

// third is one extension server behind a front door.
type third struct {
	party     *compat.Party
	frontDoor *frontDoor
	name      string // of its namespace, Service and ServiceAccount
	dir       string
	port      int
	log       *os.File
	ca        *pki.Authority // signs its serving certificate
	runner
	versions []schema.GroupVersion
	// serves sends a request that the server must process, through the front door.
	serves func(context.Context, *rest.Config) error
	// keep writes an object to the server's storage, and kept reports one that exists. Nil: it has no storage.
	keep func(context.Context) error
	kept func(context.Context) error
}

// newThird makes room for an extension server: its namespace, account, rights, kubeconfig and serving certificate.
func newThird(t *testing.T, d *frontDoor, party *compat.Party, name string, rules []rbacv1.PolicyRule, versions ...schema.GroupVersion) *third {
	t.Helper()
	s := &third{party: party, frontDoor: d, name: name, dir: t.TempDir(), port: freePort(t), log: openLog(t, name), versions: versions}
	party.LogsIn(fmt.Sprintf("%s, and of the front door %s", s.log.Name(), d.log.Name()))
	s.ca = newAuthority(t, name)
	s.certify(t, time.Hour)
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: name}
	d.bind(t, name, account, rules...)
	d.bindTo(t, name+":system:auth-delegator", account, "system:auth-delegator")
	if _, err := d.typed.RbacV1().RoleBindings("kube-system").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-auth-reader"}, Subjects: []rbacv1.Subject{account},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	d.parties = append(d.parties, s)
	return s
}

// settle creates the objects of the server's namespace, and its kubeconfig.
func (s *third) settle(t *testing.T) {
	t.Helper()
	ctx, core := t.Context(), s.frontDoor.typed.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ServiceAccounts(s.name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Services(s.name).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := core.ServiceAccounts(s.name).CreateToken(ctx, s.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := api.NewConfig()
	c.Clusters["front"] = &api.Cluster{Server: s.frontDoor.config.Host, CertificateAuthorityData: s.frontDoor.config.CAData}
	c.AuthInfos["it"] = &api.AuthInfo{Token: token.Status.Token}
	c.Contexts["it"] = &api.Context{Cluster: "front", AuthInfo: "it"}
	c.CurrentContext = "it"
	if err := clientcmd.WriteToFile(*c, s.kubeconfig()); err != nil {
		t.Fatal(err)
	}
}

func (s *third) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// certify gives the server a serving certificate, where servers on the libraries keep the one that they would make.
func (s *third) certify(t *testing.T, ttl time.Duration) {
	t.Helper()
	host := s.name + "." + s.name + ".svc"
	cert, key, err := s.ca.Issue(pki.Leaf{CommonName: host, DNSNames: []string{host, "localhost"}, Server: true, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(s.dir, "apiserver.key"), key)
	place(t, filepath.Join(s.dir, "apiserver.crt"), cert)
}

// program runs the server as a process. It listens at the address of the common flags.
func (s *third) program(name string, args ...string) {
	s.runner = &program{third: s, name: name, args: append([]string{
		"--authentication-kubeconfig", s.kubeconfig(), "--authorization-kubeconfig", s.kubeconfig(),
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(s.port), "--cert-dir", s.dir,
	}, args...)}
}

type program struct {
	*third
	name    string
	args    []string
	env     []string // in addition to the usual ones
	process *programs.Process
}

func (p *program) start(t *testing.T) {
	t.Helper()
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}, p.env...)
	process, err := programs.Start(p.name, p.dir, env, p.log, filepath.Join(binaries, p.name), p.args...)
	if err != nil {
		t.Fatal(err)
	}
	p.process = process
	p.frontDoor.t.Cleanup(func() { p.kill(p.frontDoor.t, process) })
}

func (p *program) stop(t *testing.T) {
	t.Helper()
	p.kill(t, p.process)
}

// kill kills the process, as a machine failure does. A process that has exited before is an error.
func (p *program) kill(t *testing.T, process *programs.Process) {
	t.Helper()
	select {
	case <-process.Exited():
		if !process.Ended {
			t.Errorf("%s exited before it was killed, want it running; its log is %s", p.name, p.log.Name())
			process.Ended = true
		}
	default:
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// register makes the server's APIServices.
func (s *third) register(t *testing.T) {
	t.Helper()
	port := int32(s.port)
	for _, gv := range s.versions {
		if _, err := s.frontDoor.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 1000, VersionPriority: 15,
				Service:  &apiregistrationv1.ServiceReference{Namespace: s.name, Name: s.name, Port: &port},
				CABundle: s.ca.PEM(),
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *third) unregister(t *testing.T) {
	t.Helper()
	for _, gv := range s.versions {
		if err := s.frontDoor.aggregator.ApiregistrationV1().APIServices().Delete(t.Context(), gv.Version+"."+gv.Group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// condition returns the front door's condition of one of the server's group-versions.
func (s *third) condition(ctx context.Context, gv schema.GroupVersion) (apiregistrationv1.APIServiceCondition, error) {
	a, err := s.frontDoor.aggregator.ApiregistrationV1().APIServices().Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	if err != nil {
		return apiregistrationv1.APIServiceCondition{}, err
	}
	for _, c := range a.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c, nil
		}
	}
	return apiregistrationv1.APIServiceCondition{}, errors.New("no condition Available")
}

// awaitAvailable waits until the server responds, also to an unknown user.
func (s *third) awaitAvailable(t *testing.T) {
	t.Helper()
	eventually(t, s.name+" serves", func() error {
		for _, gv := range s.versions {
			c, err := s.condition(t.Context(), gv)
			if err != nil {
				return err
			}
			if c.Status != apiregistrationv1.ConditionTrue {
				return fmt.Errorf("%s is not available: %s: %s; its log is %s", gv, c.Reason, c.Message, s.log.Name())
			}
		}
		newUser, err := s.frontDoor.newUser(users)
		if err != nil {
			return err
		}
		return s.serves(t.Context(), newUser)
	})
}

// awaitReason waits until all its group-versions are unavailable for that reason, and clients get that message.
func (s *third) awaitReason(t *testing.T, reason, message string) {
	t.Helper()
	eventually(t, s.name+" is "+reason, func() error {
		for _, gv := range s.versions {
			c, err := s.condition(t.Context(), gv)
			if err != nil {
				return err
			}
			if c.Status != apiregistrationv1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, message) {
				return fmt.Errorf("%s is %s: %s: %s", gv, c.Status, c.Reason, c.Message)
			}
		}
		return nil
	})
}
