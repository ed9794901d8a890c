package clusters

import (
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
)

// The limits of one Cluster. Rates are evaluated one after another for each request.
const (
	maxEndpoints   = 16
	maxHosts       = 64
	maxRates       = 64
	maxAPIServices = 64
	maxValues      = 256 // of one list
	maxText        = 1024
	maxRate        = 1_000_000
	// maxShared limits the items of spec.shared, and maxSharedResources the resources of one. The rights are checked for each.
	maxShared, maxSharedResources = 8, 16
	maxSharedAge, maxStaleIfError = 5 * time.Minute, 24 * time.Hour
)

// systemPrefix begins the names of users and groups with rights in every cluster.
const systemPrefix = "system:"

func validateCluster(c *v1alpha1.Cluster) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validate.PlainMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSLabel) // a segment of paths
	errs = append(errs, validateList(c.Spec.Hosts, maxHosts, spec.Child("hosts"), validateHost)...)
	errs = append(errs, validateServer(&c.Spec.Server, spec.Child("server"))...)
	if s := c.Spec.Credentials.Secret; s != nil {
		at := spec.Child("credentials", "secret")
		errs = append(errs, validate.DnsLabel(s.Namespace, at.Child("namespace"))...)
		errs = append(errs, validate.DnsSubdomain(s.Name, at.Child("name"))...)
	}
	errs = append(errs, validateIdentity(&c.Spec.Identity, spec.Child("identity"))...)
	errs = append(errs, validateList(c.Spec.APIServices, maxAPIServices, spec.Child("apiServices"), validateAPIService)...)
	errs = append(errs, validateLimits(&c.Spec.Limits, spec.Child("limits"))...)
	errs = append(errs, validateShared(c.Spec.Shared, spec.Child("shared"))...)
	if m := c.Spec.Maintenance; m != nil {
		at := spec.Child("maintenance")
		errs = append(errs, validate.Required(m.Mode, at.Child("mode"), v1alpha1.ReadOnly, v1alpha1.Closed)...)
		if len(m.Message) > maxText {
			errs = append(errs, field.TooLong(at.Child("message"), "", maxText))
		}
		errs = append(errs, validateList(m.ExemptGroups, maxValues, at.Child("exemptGroups"), validateText)...)
	}
	return errs
}

func validateClusterUpdate(c, _ *v1alpha1.Cluster) field.ErrorList { return validateCluster(c) }

func validateClusterStatus(c, _ *v1alpha1.Cluster) field.ErrorList {
	at := field.NewPath("status")
	errs := metav1validation.ValidateConditions(c.Status.Conditions, at.Child("conditions"))
	addresses := make([]string, 0, len(c.Status.Endpoints))
	for _, e := range c.Status.Endpoints {
		addresses = append(addresses, e.Address)
	}
	return append(errs, validateList(addresses, 2*maxEndpoints, at.Child("endpoints"), validateText)...) // removed ones may remain for a while
}

// validateList checks the number of items, each item, and that no item occurs twice.
func validateList(items []string, limit int, at *field.Path, check func(string, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	if len(items) > limit {
		return field.ErrorList{field.TooMany(at, len(items), limit)}
	}
	seen := sets.New[string]()
	for i, item := range items {
		errs = append(errs, check(item, at.Index(i))...)
		if seen.Has(item) {
			errs = append(errs, field.Duplicate(at.Index(i), item))
		}
		seen.Insert(item)
	}
	return errs
}

// validateText refuses values that headers would not carry unchanged.
func validateText(value string, at *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case len(value) > maxText:
		return field.ErrorList{field.TooLong(at, "", maxText)}
	case strings.ContainsFunc(value, unicode.IsControl), strings.TrimSpace(value) != value:
		return field.ErrorList{field.Invalid(at, value, "must not contain control characters, nor begin or end with a space")}
	}
	return nil
}

func validateHost(host string, at *field.Path) field.ErrorList {
	if net.ParseIP(host) != nil {
		return field.ErrorList{field.Invalid(at, host, "must be a DNS name, not an IP address")}
	}
	return validate.DnsSubdomain(host, at)
}

// validateAPIService refuses names that no APIService of an extension server has. The core group has no name.
func validateAPIService(name string, at *field.Path) field.ErrorList {
	version, group, _ := strings.Cut(name, ".")
	if len(utilvalidation.IsDNS1035Label(version)) > 0 || len(utilvalidation.IsDNS1123Subdomain(group)) > 0 {
		return field.ErrorList{field.Invalid(at, name, "must be the name of an APIService, VERSION.GROUP, such as v1beta1.metrics.k8s.io")}
	}
	return nil
}

func validateServer(s *v1alpha1.ClusterServer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Endpoints) == 0 {
		errs = append(errs, field.Required(at.Child("endpoints"), "at least one address is needed, such as 192.0.2.1:6443"))
	}
	errs = append(errs, validateList(s.Endpoints, maxEndpoints, at.Child("endpoints"), validateEndpoint)...)
	if len(s.CABundle) > 0 {
		if _, err := pki.ParseBundle(s.CABundle); err != nil {
			errs = append(errs, field.Invalid(at.Child("caBundle"), field.OmitValueType{}, err.Error()))
		}
		if s.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
		}
	}
	if s.ServerName != "" && net.ParseIP(s.ServerName) == nil {
		errs = append(errs, validate.DnsSubdomain(s.ServerName, at.Child("serverName"))...)
	}
	if s.Tunnel != "" {
		errs = append(errs, validate.DnsLabel(s.Tunnel, at.Child("tunnel"))...)
	}
	return errs
}

func validateEndpoint(address string, at *field.Path) field.ErrorList {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return field.ErrorList{field.Invalid(at, address, "must be HOST:PORT, such as 192.0.2.1:6443")}
	}
	var errs field.ErrorList
	if net.ParseIP(host) == nil && len(utilvalidation.IsDNS1123Subdomain(host)) > 0 {
		errs = append(errs, field.Invalid(at, address, "the host must be a DNS name in lower case, or an IP address"))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		errs = append(errs, field.Invalid(at, address, "the port must be a number between 1 and 65535"))
	}
	return errs
}

func validateIdentity(i *v1alpha1.ClusterIdentity, at *field.Path) field.ErrorList {
	errs := validate.OneOf(i.Mode, at.Child("mode"), v1alpha1.Impersonate, v1alpha1.FrontProxy)
	errs = append(errs, validate.OneOf(i.Tokens, at.Child("tokens"), v1alpha1.NoTokens, v1alpha1.ServiceAccountTokens, v1alpha1.AllTokens)...)
	errs = append(errs, validatePrefix(i.UserPrefix, at.Child("userPrefix"))...)
	errs = append(errs, validatePrefix(i.GroupPrefix, at.Child("groupPrefix"))...)
	return append(errs, validateList(i.SystemGroups, maxValues, at.Child("systemGroups"), validateSystemGroup)...)
}

// validatePrefix refuses prefixes with which a name could become one with the prefix "system:", also after a header has lost
// spaces at its beginning.
func validatePrefix(prefix string, at *field.Path) field.ErrorList {
	switch {
	case prefix == "":
		return nil
	case strings.HasPrefix(prefix, systemPrefix), strings.HasPrefix(systemPrefix, prefix):
		return field.ErrorList{field.Invalid(at, prefix, `must neither begin with "system:" nor be the beginning of "system:", because such names have rights in every cluster`)}
	}
	return validateText(prefix, at)
}

func validateSystemGroup(group string, at *field.Path) field.ErrorList {
	if name, ok := strings.CutPrefix(group, systemPrefix); !ok || name == "" {
		return field.ErrorList{field.Invalid(at, group, `must begin with "system:"; other groups are sent without being listed`)}
	}
	return validateText(group, at)
}

func validateLimits(l *v1alpha1.ClusterLimits, at *field.Path) field.ErrorList {
	errs := validateRate(l.MaxRequestsInFlight, at.Child("maxRequestsInFlight"))
	if len(l.Rates) > maxRates {
		errs = append(errs, field.TooMany(at.Child("rates"), len(l.Rates), maxRates))
	}
	names := sets.New[string]()
	for i := range l.Rates {
		r, at := &l.Rates[i], at.Child("rates").Index(i)
		errs = append(errs, validate.DnsLabel(r.Name, at.Child("name"))...)
		if names.Has(r.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		names.Insert(r.Name)
		errs = append(errs, validateRateLimit(r, at)...)
	}
	return errs
}

func validateRateLimit(r *v1alpha1.RateLimit, at *field.Path) field.ErrorList {
	errs := validateRate(&r.RequestsPerSecond, at.Child("requestsPerSecond"))
	errs = append(errs, validateRate(r.Burst, at.Child("burst"))...)
	errs = append(errs, validateList(r.Users, maxValues, at.Child("users"), validateText)...)
	errs = append(errs, validateList(r.Groups, maxValues, at.Child("groups"), validateText)...)
	errs = append(errs, validateList(r.Verbs, maxValues, at.Child("verbs"), validate.DnsLabel)...)
	errs = append(errs, validateList(r.Resources, maxValues, at.Child("resources"), validateResource)...)
	return append(errs, validateList(r.Namespaces, maxValues, at.Child("namespaces"), validate.DnsLabel)...)
}

// validateRate accepts a number that is not set.
func validateRate(n *int32, at *field.Path) field.ErrorList {
	if n != nil && (*n < 1 || *n > maxRate) {
		return field.ErrorList{field.Invalid(at, *n, "must be between 1 and "+strconv.Itoa(maxRate))}
	}
	return nil
}

func validateShared(list []v1alpha1.SharedResources, at *field.Path) field.ErrorList {
	if len(list) > maxShared {
		return field.ErrorList{field.TooMany(at, len(list), maxShared)}
	}
	var errs field.ErrorList
	for i := range list {
		s, at := &list[i], at.Index(i)
		if len(s.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "at least one resource is needed, such as pods"))
		}
		errs = append(errs, validateList(s.Resources, maxSharedResources, at.Child("resources"), validateSharedResource)...)
		errs = append(errs, validateDuration(&s.MaxAge, maxSharedAge, at.Child("maxAge"))...)
		errs = append(errs, validateDuration(s.StaleIfError, maxStaleIfError, at.Child("staleIfError"))...)
	}
	return errs
}

func validateSharedResource(name string, at *field.Path) field.ErrorList {
	if strings.Contains(name, "/") {
		return field.ErrorList{field.Invalid(at, name, "responses of subresources are not shared")}
	}
	return validateResource(name, at)
}

// validateDuration accepts a duration that is not set.
func validateDuration(d *metav1.Duration, limit time.Duration, at *field.Path) field.ErrorList {
	if d != nil && (d.Duration < 0 || d.Duration > limit) {
		return field.ErrorList{field.Invalid(at, d.Duration.String(), "must be between 0s and "+limit.String())}
	}
	return nil
}

// validateResource refuses names that no request has.
func validateResource(name string, at *field.Path) field.ErrorList {
	groupResource, subresource, hasSubresource := strings.Cut(name, "/")
	resource, group, hasGroup := strings.Cut(groupResource, ".")
	if len(utilvalidation.IsDNS1123Label(resource)) > 0 || hasGroup && len(utilvalidation.IsDNS1123Subdomain(group)) > 0 ||
		hasSubresource && len(utilvalidation.IsDNS1123Label(subresource)) > 0 {
		return field.ErrorList{field.Invalid(at, name, `must be a resource such as "pods", "pods/exec", "deployments.apps" or "deployments.apps/scale"`)}
	}
	return nil
}
