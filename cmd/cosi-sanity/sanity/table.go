package sanity

// The sources that sentences are quoted from. Files and lines are those of
//
//	v1alpha1   Go module sigs.k8s.io/container-object-storage-interface-spec v0.1.0
//	v1alpha2   github.com/kubernetes-sigs/container-object-storage-interface, proto/, commit ee00c2690b87
//	sidecar    the same repository: tag v0.2.2 for v1alpha1, that commit for v1alpha2
//	draft      proto/ of the branch that brought v1alpha2 the generation of ids, commit 652397ddf647

func must(v Version, source, sentence string) Rule { return Rule{v, Must, sentence, source} }

func should(v Version, source, sentence string) Rule { return Rule{v, Should, sentence, source} }

func setUp(v Version, sentence string) Rule { return Rule{v, SetUp, sentence, "cosi-sanity:1"} }

func safety(v Version, source, sentence string) Rule { return Rule{v, SidecarSafety, sentence, source} }

// Sentences that several checks stand on.
const (
	oneMatches    = "If a bucket that matches both name and parameters already exists, then OK (success) must be returned."
	oneDifferent  = "If a bucket by same name, but different parameters is provided, then the appropriate error code ALREADY_EXISTS must be returned."
	oneGone       = "If the bucket has already been deleted, then no error should be returned."
	oneUnique     = "The account_name in the request shall be used as a unique identifier to create credentials."
	onePending    = "The Plugin, SHOULD handle this as gracefully as possible, and MAY return this error code to reject secondary calls."
	oneInvalid    = "Indicates that the one or more fields in this field is either not allowed by the Plugin or has an invalid value."
	oneMissing    = "Indicates that a required field is missing from the request."
	oneSize       = "Unless otherwise specified, fields SHALL NOT exceed the limits documented here."
	conditions    = "In addition to those, if the conditions defined below are encountered, the plugin MUST return the associated gRPC error code."
	forgotten     = "After this call the sidecar forgets the account and the application its Secret: a key that still opens the bucket goes on to do so, and no object tells of it."
	oneNamespace  = "The key is written into a Secret of one namespace: if it opens other buckets, anyone who reads that Secret reads the data of other namespaces."
	leftBehind    = "With the finalizer the object goes, and with it all that names what the driver has made: what is left at the service then stays."
	crashes       = "The call is repeated when the driver is back, and ends it again: all other buckets and accesses wait with it."
	resumes       = "Idempotency requirements ensure that a retried call with the same fields continues where it left off when retried."
	canonical     = "Each RPC defines a set of gRPC error codes that MUST be returned by the plugin when specified conditions are encountered."
	statusCode    = "The status `code` MUST contain a [canonical error code]"
	statusMessage = "The status `message` MUST contain a human readable description of error, if the status `code` is not `OK`."
	statusDetails = "The status `details` MUST be empty."
	twoExists     = "MUST return OK if a backend bucket with matching identity and parameters already exists."
	twoForm       = "To prevent abuse, this must be at most 2048 characters long, consisting of alphanumeric characters ([a-z0-9A-Z]), dashes (-), and dots (.)."
	twoPrincipal  = "MUST return OK if a principal with matching identity and parameters already exists."
	twoOtherwise  = "MUST return ALREADY_EXISTS if a principal with matching identity exists but with incompatible parameters."
	twoDeleted    = "MUST return OK if the bucket has already been deleted."
	twoRevoked    = "MUST return OK if access has already been removed from a principal."
	twoInvalid    = "One or more fields in this field is either not allowed by the Plugin or has an invalid value."
	twoMode       = "The read/write access mode that the Provisioner SHOULD provision for the bucket associated with `bucket_id`."
	twoSimultan   = "MAY issue multiple calls simultaneously for the same volume. The Plugin SHOULD handle this as gracefully as possible."
	noDeadline    = "The sidecar sets no deadline: a call without an answer holds a worker, and its object, without end."
	retriedRevoke = "Any error, NOT_FOUND too, is repeated endlessly, and the BucketAccess is never removed."
	firstKeyStays = "A Secret that exists is not touched: the application keeps the key of the first grant, whatever a repeated one answers."
	rewritten     = "Secrets are rewritten with whatever a repeated grant answers, and each restart of the sidecar repeats every grant: running applications still hold the first key."
)

const (
	sidecarAccess1 = "sidecar/pkg/bucketaccess/bucketaccess_controller.go"
	sidecarBucket1 = "sidecar/pkg/bucket/bucket_controller.go"
	sidecarDriver2 = "sidecar/pkg/reconciler/driver.go"
	sidecarAccess2 = "sidecar/pkg/reconciler/bucketaccess.go"
)

// Checks are all checks, in the order they run in.
func Checks() []Check {
	return []Check{
		// S: what the suite needs before it can judge.
		{Number: "S01", Name: "a bucket can be made", run: canCreate, Rules: []Rule{
			setUp(V1Alpha1, "DriverCreateBucket with the given parameters is answered OK."),
			setUp(V1Alpha2, "DriverCreateBucket with the given parameters is answered OK."),
		}},

		// I: who the driver is.
		{Number: "I01", Name: "the driver's name is in domain name notation, of at most 63 characters", run: driverName, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:147", "The name MUST follow domain name notation format"),
			must(V1Alpha2, "cosi.proto:103", "The name MUST follow domain name notation format"),
		}},
		{Number: "I02", Name: "the driver's name is one that the sidecar starts with", run: driverNameLabels, Rules: []Rule{
			safety(V1Alpha2, sidecarDriver2+":85", "Every part of the name between dots has to be an RFC 1035 label, in lower case and beginning with a letter; otherwise the sidecar ends."),
		}},
		{Number: "I03", Name: "the driver supports a protocol", run: someProtocol, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:113", "At least one protocol is REQUIRED."),
		}},
		{Number: "I04", Name: "the driver names no protocol twice and none UNKNOWN", run: knownProtocols, Rules: []Rule{
			safety(V1Alpha2, sidecarDriver2+":110", "With an UNKNOWN protocol in the list, or one that is there twice, the sidecar ends."),
		}},

		// B: buckets.
		{Number: "B01", Name: "create answers a bucket_id", needs: "S01", run: createAnswersID, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":145", "An empty bucket_id is an error that is repeated endlessly."),
			must(V1Alpha2, "cosi.proto:298", "REQUIRED. The unique identifier for the backend bucket known to the Provisioner."),
		}},
		{Number: "B02", Name: "a bucket_id keeps to its alphabet and length", needs: "B01", run: bucketIDForm, Rules: []Rule{
			must(V1Alpha1, "spec.md:380", oneSize),
			must(V1Alpha2, "cosi.proto:302", twoForm),
		}},
		{Number: "B13", Name: "a generated bucket_id is the same each time, and no other bucket's", Since: C1, needs: "S01", run: generatedBucketID, Rules: []Rule{
			must(V1Alpha2, "draft/cosi.proto:63", "It MUST return the same bucket_id for every call with the same name."),
		}},
		{Number: "B03", Name: "create, repeated, answers the same bucket_id", needs: "B01 2:B13", run: createAgain, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:64", oneMatches),
			must(V1Alpha2, "cosi.proto:65", twoExists),
		}},
		{Number: "B04", Name: "two names are two buckets", needs: "B01 2:B13", run: ownBuckets, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":340", "The bucket_id is all that a deletion names: with one for two Buckets, the deletion of one deletes the other's data."),
			must(V1Alpha2, "cosi.proto:298", "REQUIRED. The unique identifier for the backend bucket known to the Provisioner."),
		}},
		{Number: "B05", Name: "create with other parameters is ALREADY_EXISTS, and changes nothing", needs: "B03", run: createOtherwise, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:65", oneDifferent),
			must(V1Alpha2, "cosi.proto:66", "MUST return ALREADY_EXISTS if a backend bucket with matching identity exists but with incompatible parameters."),
		}},
		{Number: "B06", Name: "create answers every requested protocol, and no unsupported one", needs: "B01 I03", run: protocolsServed, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:312", "The Provisioner MUST indicate support for the protocols in the request."),
		}},
		{Number: "B16", Name: "delete of a bucket is OK", needs: "B01 B04", run: deletes, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":346", "Any error but NOT_FOUND is repeated endlessly, and the Bucket is never removed."),
			must(V1Alpha2, "spec.md:561", "If a bucket corresponding to the specified name does not exist, the Plugin MUST reply OK."),
		}},
		{Number: "B07", Name: "delete, repeated, is OK", needs: "B16", run: deleteAgain, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:68", oneGone),
			must(V1Alpha2, "cosi.proto:79", twoDeleted),
		}},
		{Number: "B08", Name: "delete of a deleted bucket ends", needs: "B16", run: deleteGone, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":346", "Any error but NOT_FOUND is repeated endlessly, and the Bucket is never removed."),
		}},
		{Number: "B09", Name: "delete of a bucket that never was ends", needs: "B01", run: deleteUnknown, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":346", "Any error but NOT_FOUND is repeated endlessly, and the Bucket is never removed."),
			must(V1Alpha2, "spec.md:561", "If a bucket corresponding to the specified name does not exist, the Plugin MUST reply OK."),
		}},
		{Number: "B14", Name: "a bucket_id that was only generated is no bucket's, and its deletion is OK", Since: C1, needs: "B09 2:B07", run: onlyGeneratedBucket, Rules: []Rule{
			must(V1Alpha2, "draft/cosi.proto:66", "It MUST NOT result in backend resource leakage if this command fails and COSI subsequently deletes the resource without calling DriverDeleteBucket."),
		}},
		{Number: "B10", Name: "an existing bucket is found by its id", needs: "B06", run: existingBucket, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:72", twoExists),
		}},
		{Number: "B11", Name: "an existing bucket that is gone is NOT_FOUND", needs: "B16", run: existingGone, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:73", "MUST return NOT_FOUND if a bucket with matching identity does not exist."),
		}},
		{Number: "B12", Name: "an existing bucket with other parameters is ALREADY_EXISTS", needs: "B10", run: existingOtherwise, Rules: []Rule{
			should(V1Alpha2, "spec.md:504", "`AlreadyExists` (not retryable) when the bucket already exists but is incompatible with the request."),
		}},

		{Number: "S02", Name: "access can be given", needs: "B01", run: canGrant, Rules: []Rule{
			setUp(V1Alpha1, "DriverGrantBucketAccess with the given parameters is answered OK."),
			setUp(V1Alpha2, "DriverGrantBucketAccess with the given parameters is answered OK."),
		}},
		// A: access.
		{Number: "A01", Name: "grant answers an account_id", needs: "S02", run: grantAnswersID, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:211", "This field is REQUIRED This is the account_id that is being provided access."),
			must(V1Alpha2, "cosi.proto:436", "REQUIRED. The unique identifier for the backend access account known to the Provisioner."),
		}},
		{Number: "A15", Name: "a generated account_id is the same each time, and no other account's", Since: C2, needs: "A01", run: generatedAccountID, Rules: []Rule{
			must(V1Alpha2, "KEP-1979/README.md:1264", "This API must be idempotent. […] The returned ID must be unique"),
		}},
		{Number: "A02", Name: "an account_id keeps to its alphabet and length", needs: "A01", run: accountIDForm, Rules: []Rule{
			must(V1Alpha1, "spec.md:380", oneSize),
			must(V1Alpha2, "cosi.proto:440", twoForm),
		}},
		{Number: "A03", Name: "credentials are of one protocol, and complete", needs: "A01", run: credentialsComplete, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":195", "Other than one entry is an error that is repeated endlessly. An entry that is not s3 or azure, and a key that is misspelt, make an empty Secret without any error."),
			must(V1Alpha2, "cosi.proto:148", "If a protocol is not supported, the message MUST be empty/nil."),
		}},
		{Number: "A04", Name: "grant answers a complete info of each requested bucket, and no other", needs: "A01", run: bucketInfosComplete, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:450", "REQUIRED: EXACTLY one protocol bucket info result MUST be non-nil. The Provisioner MUST fill in all required bucket info for the requested protocol."),
		}},
		{Number: "A05", Name: "grant, repeated, answers the same account_id", needs: "A01 2:A15", run: grantAgain, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "cosi.proto:85", twoPrincipal),
		}},
		{Number: "A06", Name: "grant, repeated, answers the same key", needs: "A05", run: grantSameKey, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "A07", Name: "two names are two accounts", needs: "A01 2:A15", run: ownAccounts, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "cosi.proto:436", "REQUIRED. The unique identifier for the backend access account known to the Provisioner."),
		}},
		{Number: "A08", Name: "grant with other parameters is answered as the sidecar can bear it", needs: "A05", run: grantOtherwise, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":181", "ALREADY_EXISTS makes the sidecar read an answer that it has not got: it crashes, and again at each start."),
			must(V1Alpha2, "cosi.proto:86", twoOtherwise),
		}},
		{Number: "A09", Name: "grant of another bucket under the same name is ALREADY_EXISTS", needs: "A05 B04", run: grantElsewhere, Rules: []Rule{
			should(V1Alpha2, "cosi.proto:86", twoOtherwise),
		}},
		{Number: "A10", Name: "grant on an unknown bucket is an error", needs: "B16 A01", run: grantUnknownBucket, Rules: []Rule{
			should(V1Alpha1, sidecarAccess1+":244", "OK is told as accessGranted: the application gets a Secret for a bucket that is not there."),
			should(V1Alpha2, sidecarAccess2+":230", "OK is told as readyToUse: the application gets a Secret for a bucket that is not there."),
		}},
		{Number: "A11", Name: "a grant for several buckets answers each, or OUT_OF_RANGE", needs: "A04 B04", run: manyBuckets, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:460", "REQUIRED. The Provisioner MUST return info for all `buckets` in the request."),
		}},
		{Number: "A12", Name: "the order of a grant's buckets does not matter", needs: "A05 A11", run: anyOrder, Rules: []Rule{
			safety(V1Alpha2, sidecarAccess2+":459", "The buckets stand in another order in each call, so that drivers do not rely on one."),
		}},
		{Number: "A13", Name: "an authentication type is served or INVALID_ARGUMENT", needs: "B01", run: authenticationTypes, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", conditions+" […] "+oneInvalid),
			must(V1Alpha2, "spec.md:194", conditions+" […] `InvalidArgument` (not retryable) if `AuthenticationType` is not supported."),
		}},

		{Number: "A14", Name: "credentials name a region", needs: "A01", run: regionNamed, Rules: []Rule{
			should(V1Alpha1, sidecarAccess1+":195", "What the credentials have no key for is an empty text in the Secret."),
		}},
		{Number: "A17", Name: "access to an existing bucket is given by the id that the sidecar keeps", needs: "B10 A01", run: existingGranted, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:300", "Provisioner MUST be able to correlate `bucket_id` to the backend bucket."),
		}},

		// R: revocation.
		{Number: "R04", Name: "revoke of an access is OK", needs: "A01", run: revokes, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "spec.md:680", "If an access corresponding to the specified name already doesn't exist, the Plugin MUST reply OK."),
		}},
		{Number: "R01", Name: "revoke, repeated, is OK", needs: "R04", run: revokeAgain, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},
		{Number: "R05", Name: "revocation by an account_id that was only generated is OK", Since: C2, needs: "R01", run: onlyGeneratedAccount, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},
		{Number: "R02", Name: "revoke of access that never was is OK", needs: "R04", run: revokeUnknown, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "spec.md:680", "If an access corresponding to the specified name already doesn't exist, the Plugin MUST reply OK."),
		}},
		{Number: "R03", Name: "a bucket and its access end, whichever is deleted first", needs: "R01 B16", run: revokeAfterDelete, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":261", "The bucket is deleted while the revocation of its access is only asked for: DriverRevokeBucketAccess comes afterwards, and any error is repeated endlessly."),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},

		{Number: "S03", Name: "the object store is reached", needs: "A01", run: canReach, Rules: []Rule{
			setUp(V1Alpha1, "The object store answers this machine over HTTP."),
			setUp(V1Alpha2, "The object store answers this machine over HTTP."),
		}},
		// K: what issued keys can do.
		{Number: "K01", Name: "an issued key writes, reads, lists and deletes objects", needs: "A01 S03", run: keyWorks, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:216", "This field is REQUIRED Credentials supplied for accessing the bucket ex: aws access key id and secret, etc."),
			must(V1Alpha2, "cosi.proto:408", "REQUIRED. The authentication type that the Provisioner MUST provision for this request."),
		}},
		{Number: "K02", Name: "a bucket is reached under the name it was asked for with", needs: "K01", run: reachedByName, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":209", "The Secret shows the Bucket object's name, which is the name in DriverCreateBucketRequest, as the bucket to use."),
		}},
		{Number: "K03", Name: "the key given first outlives repeated grants", needs: "K01 A05", run: keyOutlivesRepeats, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "K04", Name: "a revoked key is refused, and its neighbour is not", needs: "K01 A07 R04", run: revokedKeyRefused, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", forgotten),
			safety(V1Alpha2, sidecarAccess2+":266", forgotten),
		}},
		{Number: "K05", Name: "a key is refused in the neighbour's bucket", needs: "K01 B04", run: keysIsolated, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", oneNamespace),
			safety(V1Alpha2, sidecarAccess2+":230", oneNamespace),
		}},
		{Number: "K06", Name: "a read-only key reads and does not write", needs: "K05 A07", run: readOnlyReads, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:206", "The receiver is responsible for parsing and validating the values."),
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K07", Name: "a write-only key writes and does not read", needs: "K05 A07", run: writeOnlyWrites, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:206", "The receiver is responsible for parsing and validating the values."),
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K09", Name: "a key for two buckets has each bucket's own mode", needs: "K06 K07 A11", run: eachItsMode, Rules: []Rule{
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K10", Name: "a key that may write metadata, and data only read, does not write data", Since: B2, needs: "K06", run: metadataWider, Rules: []Rule{
			should(V1Alpha2, "draft/cosi.proto:271", "Read-only access mode."),
		}},
		{Number: "K11", Name: "every key that was answered for an access is refused after its revocation", needs: "K04 A05", run: everyKeyRefused, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", forgotten),
			safety(V1Alpha2, sidecarAccess2+":266", forgotten),
		}},

		// F: fields.
		{Number: "F01", Name: "a missing field of create or grant is INVALID_ARGUMENT", needs: "B01 2:A13", run: missingFields, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", conditions+" […] "+oneMissing),
			must(V1Alpha2, "spec.md:194", conditions+" […] "+twoInvalid),
		}},
		{Number: "F02", Name: "a missing id of delete or revoke is OK or INVALID_ARGUMENT", needs: "B01", run: missingIDs, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", conditions+" […] "+oneMissing),
			must(V1Alpha2, "spec.md:194", conditions+" […] "+twoInvalid),
		}},
		{Number: "F03", Name: "an unknown enum value is INVALID_ARGUMENT", needs: "B01", run: unknownValues, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", conditions+" […] "+oneInvalid),
			must(V1Alpha2, "spec.md:194", conditions+" […] "+twoInvalid),
		}},
		{Number: "F04", Name: "an unsupported protocol is INVALID_ARGUMENT", needs: "B01 I03", run: unsupportedProtocols, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:289", "If any protocol cannot be supported, the Provisioner MUST return `InvalidArgument`."),
		}},
		{Number: "F05", Name: "create takes an over-long value or refuses it for what it is", needs: "B01", run: overlongCreates, Rules: []Rule{
			must(V1Alpha1, "spec.md:482", "this code MUST also be used to indicate when plugin cannot create a bucket due to parameter check on the backend."),
			must(V1Alpha2, "spec.md:194", conditions+" […] `InvalidArgument` (not retryable) if any parameters are invalid for the backend."),
		}},
		{Number: "F06", Name: "the other calls answer an over-long value", needs: "B01", run: overlongOthers, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", conditions+" […] "+oneInvalid),
			must(V1Alpha2, "spec.md:194", conditions+" […] "+twoInvalid),
		}},
		{Number: "F07", Name: "a foreign id is answered", needs: "B01", run: foreignIDsAnswered, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":346", "The sidecar does not look whose BucketAccess it revokes: each driver of a cluster is sent the ids of all."),
			safety(V1Alpha2, sidecarAccess2+":191", "Neither controller nor sidecar compares the Bucket's driver with the access's: a driver is sent another's bucket_id."),
		}},

		// C: callers at once.
		{Number: "C01", Name: "callers of one bucket name get one bucket_id", needs: "B03", run: createAtOnce, Rules: []Rule{
			must(V1Alpha1, "spec.md:454", "This operation MUST be idempotent."),
			must(V1Alpha2, "spec.md:430", "This operation MUST be idempotent."),
		}},
		{Number: "C02", Name: "callers of one access name get one account_id", needs: "A05", run: grantAtOnce, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "spec.md:584", "This operation MUST be idempotent."),
		}},
		{Number: "C03", Name: "callers of one access name get one key", needs: "A06", run: keyAtOnce, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "C04", Name: "callers of different names do not disturb each other", needs: "A07 B04 R04 B16", run: differentAtOnce, Rules: []Rule{
			should(V1Alpha1, "spec.md:417", onePending),
			should(V1Alpha2, "spec.md:148", twoSimultan),
		}},
		{Number: "C05", Name: "callers that end the same access, then the same bucket, all come to an end", needs: "R01 B08 2:B07", run: endAtOnce, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},
		{Number: "C06", Name: "a bucket and its accesses, deleted at once, all come to an end", needs: "R01 R03 B08 2:B07", run: deleteTogether, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":246", "The deletion of a bucket's accesses is asked for and the bucket deleted at the same moment; each call is repeated until it is OK."),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},

		{Number: "C07", Name: "keys of one bucket that are granted at once all work, and revoked at once are all refused", needs: "K04", run: keysAtOnce, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:216", "This field is REQUIRED Credentials supplied for accessing the bucket ex: aws access key id and secret, etc."),
			must(V1Alpha2, "cosi.proto:408", "REQUIRED. The authentication type that the Provisioner MUST provision for this request."),
		}},

		// T: calls that are given up, and restarts.
		{Number: "T01", Name: "a create that was given up is completed by a repetition", needs: "B03", run: createGivenUp, Rules: []Rule{
			must(V1Alpha1, "spec.md:454", "This operation MUST be idempotent."),
			must(V1Alpha2, "spec.md:430", "This operation MUST be idempotent."),
		}},
		{Number: "T02", Name: "a grant that was given up is completed by a repetition", needs: "A05", run: grantGivenUp, Rules: []Rule{
			safety(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:584", "This operation MUST be idempotent."),
		}},
		{Number: "T03", Name: "a revoke that was given up is completed by a repetition", needs: "R01", run: revokeGivenUp, Rules: []Rule{
			safety(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:680", "This operation MUST be idempotent."),
		}},
		{Number: "T04", Name: "a delete that was given up is completed by a repetition", needs: "B08 2:B07", run: deleteGivenUp, Rules: []Rule{
			safety(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:561", "This operation MUST be idempotent."),
		}},

		{Number: "T05", Name: "ids are the same after a restart of the driver", needs: "B03 A05", run: restarted, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:64", oneMatches),
			must(V1Alpha2, "cosi.proto:65", twoExists),
		}},

		// G: all calls of the run.
		{Number: "G01", Name: "every code is one that the RPC has", overall: codesAllowed, Rules: []Rule{
			should(V1Alpha1, "spec.md:410", canonical),
			should(V1Alpha2, "spec.md:193", canonical),
		}},
		{Number: "G02", Name: "no error comes without a code of its own", overall: noUnknown, Rules: []Rule{
			should(V1Alpha1, "spec.md:410", statusCode),
			should(V1Alpha2, "spec.md:191", statusCode),
		}},
		{Number: "G03", Name: "no grant is ALREADY_EXISTS", overall: grantNeverExists, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":181", "ALREADY_EXISTS makes the sidecar read an answer that it has not got: it crashes, and again at each start."),
		}},
		{Number: "G04", Name: "the details of every status are empty", overall: detailsEmpty, Rules: []Rule{
			must(V1Alpha1, "spec.md:424", statusDetails),
			must(V1Alpha2, "spec.md:209", statusDetails),
		}},
		{Number: "G05", Name: "every error has a message that can be read", overall: messagesReadable, Rules: []Rule{
			must(V1Alpha1, "spec.md:421", statusMessage),
			must(V1Alpha2, "spec.md:205", statusMessage),
		}},
		{Number: "G06", Name: "no error's message holds a secret", overall: messagesKeepSecrets, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":134", "The message is put into an Event, for anyone who may read Events."),
			safety(V1Alpha2, sidecarAccess2+":91", "The message is put into the object's status, for anyone who may read the object."),
		}},
		{Number: "G07", Name: "a call that is refused again is refused in the same words", overall: messagesStable, Rules: []Rule{
			should(V1Alpha1, sidecarBucket1+":134", "The message is put into an Event at each attempt: words that change make a new Event each time."),
			should(V1Alpha2, sidecarAccess2+":91", "The message is put into the object's status at each attempt: words that change write the object each time."),
		}},
		{Number: "G08", Name: "every call is answered", overall: callsAnswered, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":179", noDeadline),
			safety(V1Alpha2, sidecarAccess2+":191", noDeadline),
		}},
		{Number: "G09", Name: "the driver still answers in the end", overall: stillAnswers, Rules: []Rule{
			must(V1Alpha1, "spec.md:511", "All supported RPC services MUST be available at the listen address of the Plugin."),
			must(V1Alpha2, "spec.md:729", "All supported RPC services MUST be available at the listen address of the Plugin."),
		}},
		{Number: "G10", Name: "the suite could clean up after itself", overall: cleansUp, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":263", leftBehind),
			safety(V1Alpha2, sidecarAccess2+":266", leftBehind),
		}},
		{Number: "G11", Name: "no call ends the driver", overall: neverCrashes, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":179", crashes),
			safety(V1Alpha2, sidecarAccess2+":191", crashes),
		}},
	}
}
