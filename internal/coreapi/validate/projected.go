package validate

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//lint:file-ignore SA1019 volume types of drivers that no kubelet has any more are still in people's objects

const (
	minTokenSeconds   = 10 * 60
	maxTokenSeconds   = 1 << 32
	minPodCertificate = 3600
	maxPodCertificate = 91 * 24 * 3600
	maxOfOwnSigner    = 24 * 3600
)

// projection is a volume of files from several sources. File names must be unique.
type projection struct {
	paths sets.Set[string]
	path  *field.Path
	errs  field.ErrorList
}

func (p *projection) take(file string, value any) {
	if file == "" {
		return
	}
	if p.paths.Has(file) {
		p.errs = append(p.errs, field.Invalid(p.path, value, "conflicting duplicate paths"))
	}
	p.paths.Insert(file)
}

func (p *projection) add(errs ...*field.Error) { p.errs = append(p.errs, errs...) }

func projected(v *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	p := &projection{sets.New[string](), path, fileMode(v.DefaultMode, path.Child("defaultMode"))}
	for i := range v.Sources {
		p.source(&v.Sources[i], path.Child("sources").Index(i))
	}
	return p.errs
}

func (p *projection) source(s *corev1.VolumeProjection, path *field.Path) {
	if s.Secret != nil {
		p.keys(s.Secret.Name, s.Secret.Items, path.Child("secret"))
	}
	if s.ConfigMap != nil {
		p.keys(s.ConfigMap.Name, s.ConfigMap.Items, path.Child("configMap"))
	}
	if s.DownwardAPI != nil {
		for i := range s.DownwardAPI.Items {
			p.add(downwardFile(&s.DownwardAPI.Items[i], path.Child("downwardAPI"))...)
			p.take(s.DownwardAPI.Items[i].Path, s.DownwardAPI.Items[i].Path)
		}
	}
	if s.ServiceAccountToken != nil {
		p.token(s.ServiceAccountToken, path.Child("serviceAccountToken"))
	}
	if s.ClusterTrustBundle != nil {
		p.trustBundle(s.ClusterTrustBundle, path.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		p.certificate(s.PodCertificate, path.Child("podCertificate"))
	}
	if pointersSet(*s) > 1 {
		p.add(field.Forbidden(path, "may not specify more than 1 volume type per source"))
	}
}

func (p *projection) keys(name string, items []corev1.KeyToPath, path *field.Path) {
	p.add(RequiredName(name, path.Child("name"))...)
	p.add(keyFiles(items, path.Child("items"))...)
	for _, item := range items {
		p.take(item.Path, name)
	}
}

func (p *projection) token(t *corev1.ServiceAccountTokenProjection, path *field.Path) {
	switch at, seconds := path.Child("expirationSeconds"), t.ExpirationSeconds; {
	case seconds == nil:
		p.add(field.Required(at, ""))
	case *seconds < minTokenSeconds:
		p.add(field.Invalid(at, *seconds, "may not specify a duration less than 10 minutes"))
	case *seconds > maxTokenSeconds:
		p.add(field.Invalid(at, *seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if t.Path == "" {
		p.add(field.Required(p.path.Child("path"), ""))
		return
	}
	p.add(fileName(t.Path, p.path.Child("path"))...)
}

func (p *projection) trustBundle(b *corev1.ClusterTrustBundleProjection, path *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		p.add(field.Invalid(path, b, "only one of name and signerName may be used"))
	case b.Name != nil:
		if *b.Name == "" {
			p.add(field.Required(path.Child("name"), "must be a valid object name"))
		}
		// bundles of a signer are named signer-with-colons:name
		_, name, of := cutLast(*b.Name, ":")
		if !of {
			name = *b.Name
		}
		for _, e := range DnsSubdomain(name, path.Child("name")) {
			p.add(field.Invalid(path.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+e.Detail))
		}
		if b.LabelSelector != nil {
			p.add(field.Invalid(path.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		p.add(SignerName(*b.SignerName, path.Child("signerName"))...)
		p.add(Selector(b.LabelSelector, path.Child("labelSelector"))...)
	default:
		p.add(field.Required(path, "either name or signerName must be specified"))
	}
	p.add(RequiredName(b.Path, path.Child("path"))...)
	p.add(fileName(b.Path, path.Child("path"))...)
	p.take(b.Path, b.Path)
}

func cutLast(text, separator string) (before, after string, found bool) {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at], text[at+len(separator):], true
	}
	return text, "", false
}

func (p *projection) certificate(c *corev1.PodCertificateProjection, path *field.Path) {
	p.add(SignerName(c.SignerName, path.Child("signerName"))...)
	p.add(OneOf(c.KeyType, path.Child("keyType"), "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")...)
	if seconds, at := c.MaxExpirationSeconds, path.Child("maxExpirationSeconds"); seconds != nil {
		most := int32(maxPodCertificate)
		if strings.HasPrefix(c.SignerName, "kubernetes.io/") {
			most = maxOfOwnSigner
		}
		if *seconds < minPodCertificate {
			p.add(field.Invalid(at, *seconds, "if provided, maxExpirationSeconds must be >= 3600"))
		}
		if *seconds > most {
			p.add(field.Invalid(at, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	files := 0
	for _, f := range []struct{ name, file string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.file != "" {
			files++
			p.add(fileName(f.file, path.Child(f.name))...)
			p.take(f.file, f.file)
		}
	}
	if files == 0 {
		p.add(field.Required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

// clusterVolume checks volume types with drivers that are no longer part of Kubernetes. Only the fields that identify the
// volume are required.
func clusterVolume(v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	need := func(value string, names ...string) {
		errs = append(errs, RequiredName(value, path.Child(names[0], names[1:]...))...)
	}
	switch {
	case v.GCEPersistentDisk != nil:
		need(v.GCEPersistentDisk.PDName, "pdName")
		errs = append(errs, partition(v.GCEPersistentDisk.Partition, path.Child("partition"))...)
	case v.AWSElasticBlockStore != nil:
		need(v.AWSElasticBlockStore.VolumeID, "volumeID")
		errs = append(errs, partition(v.AWSElasticBlockStore.Partition, path.Child("partition"))...)
	case v.Glusterfs != nil:
		need(v.Glusterfs.EndpointsName, "endpoints")
		need(v.Glusterfs.Path, "path")
	case v.RBD != nil:
		need(strings.Join(v.RBD.CephMonitors, ","), "monitors")
		need(v.RBD.RBDImage, "image")
	case v.CephFS != nil:
		need(strings.Join(v.CephFS.Monitors, ","), "monitors")
	case v.Cinder != nil:
		need(v.Cinder.VolumeID, "volumeID")
		if v.Cinder.SecretRef != nil {
			need(v.Cinder.SecretRef.Name, "secretRef", "name")
		}
	case v.FlexVolume != nil:
		return flexVolume(&corev1.FlexPersistentVolumeSource{Driver: v.FlexVolume.Driver, Options: v.FlexVolume.Options}, path)
	case v.AzureFile != nil:
		need(v.AzureFile.SecretName, "secretName")
		need(v.AzureFile.ShareName, "shareName")
	case v.AzureDisk != nil:
		need(v.AzureDisk.DiskName, "diskName")
		need(v.AzureDisk.DataDiskURI, "diskURI")
	case v.VsphereVolume != nil:
		need(v.VsphereVolume.VolumePath, "volumePath")
	case v.PhotonPersistentDisk != nil:
		need(v.PhotonPersistentDisk.PdID, "pdID")
	case v.PortworxVolume != nil:
		need(v.PortworxVolume.VolumeID, "volumeID")
	case v.Quobyte != nil:
		need(v.Quobyte.Registry, "registry")
		need(v.Quobyte.Volume, "volume")
	case v.ScaleIO != nil:
		need(v.ScaleIO.Gateway, "gateway")
		need(v.ScaleIO.System, "system")
		need(v.ScaleIO.VolumeName, "volumeName")
	}
	return errs
}

// jsonName returns the name of a struct field in JSON.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
