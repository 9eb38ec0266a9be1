// Package wire holds COSI's messages, for the suite and for the driver that it is
// tried with. They are generated from the files in cosi_sanity and have no
// services: a call names its method.
package wire

//go:generate go -C ../../../.. tool -modfile=test/tools/go.mod buf generate --template cmd/cosi-sanity/internal/wire/buf.gen.yaml

// The services of each version, as they are called on the wire.
const (
	V1Alpha1 = "cosi.v1alpha1"
	V1Alpha2 = "sigs.k8s.io.cosi.v1alpha2"
)

// Method is the full name of a service's method.
func Method(version, method string) string {
	service := "Provisioner"
	if method == "DriverGetInfo" {
		service = "Identity"
	}
	return "/" + version + "." + service + "/" + method
}
