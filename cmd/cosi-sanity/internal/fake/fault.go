package fake

// Fault is one thing that a driver can do wrong.
type Fault string

// The faults. Each is named for what the driver does.
const (
	NameTooLong             Fault = "its name has 64 characters"
	NameUpperCase           Fault = "its name has an upper-case letter"
	NoProtocols             Fault = "it names no protocols"
	ProtocolTwice           Fault = "it names a protocol twice"
	NoBucketID              Fault = "create answers no bucket_id"
	LongBucketID            Fault = "a bucket_id is 2100 characters long"
	SlashInBucketID         Fault = "a bucket_id has a slash"
	LongAccountID           Fault = "an account_id is 2100 characters long"
	NewBucketID             Fault = "create, repeated, answers another bucket_id"
	OneBucketID             Fault = "all buckets have one bucket_id"
	CreateAnything          Fault = "create takes other parameters for the same"
	NoProtocolInfo          Fault = "create answers no protocols"
	UnsupportedInfo         Fault = "create answers a protocol that is not supported"
	DeleteNotFound          Fault = "delete of a deleted bucket is NOT_FOUND"
	DeletePrecondition      Fault = "delete of a deleted bucket is FAILED_PRECONDITION"
	DeleteUnknown           Fault = "delete of a bucket that never was is FAILED_PRECONDITION"
	ExistingNotFound        Fault = "an existing bucket is NOT_FOUND"
	ExistingInvented        Fault = "an existing bucket that is gone is OK"
	ExistingAnything        Fault = "an existing bucket is OK with any parameters"
	GeneratesAnother        Fault = "generate, repeated, answers another bucket_id"
	GeneratesOne            Fault = "generate answers one bucket_id for all"
	GeneratesSpaces         Fault = "a generated bucket_id has a space"
	GenerateMakes           Fault = "generate makes the bucket"
	NoAccountID             Fault = "grant answers no account_id"
	NoRegion                Fault = "credentials have no region"
	TwoCredentials          Fault = "credentials are of two protocols"
	NoStyle                 Fault = "a bucket's info has no addressing style"
	NewAccountID            Fault = "grant, repeated, answers another account_id"
	NewKey                  Fault = "grant, repeated, answers another key, and both work"
	RotatedKey              Fault = "grant, repeated, answers another key, and the first is dead"
	OneAccountID            Fault = "all accesses have one account_id"
	GrantExists             Fault = "grant with other parameters is ALREADY_EXISTS in v1alpha1"
	GrantAnything           Fault = "grant takes other parameters and buckets for the same"
	GrantUnknown            Fault = "grant takes a bucket that is gone"
	OneInfo                 Fault = "a grant for two buckets answers one"
	OrderMatters            Fault = "a grant is another one with its buckets in another order"
	IAMFailed               Fault = "a service account is FAILED_PRECONDITION"
	RevokeNotFound          Fault = "revoke of what is gone is NOT_FOUND"
	RevokeUnknown           Fault = "revoke of what never was is FAILED_PRECONDITION"
	RevokeNeedsBucket       Fault = "revoke for a bucket that is gone is FAILED_PRECONDITION"
	DeadKeys                Fault = "the keys do not work"
	BucketElsewhere         Fault = "the bucket is called otherwise in S3"
	ImmortalKeys            Fault = "a revoked key still works"
	RevokesAll              Fault = "revoke kills all keys of the bucket"
	MasterKeys              Fault = "a key opens every bucket"
	NoModes                 Fault = "every key reads and writes"
	ModesShifted            Fault = "modes in three categories are read by the numbers of one"
	MissingInternal         Fault = "a missing field is INTERNAL"
	MissingHangs            Fault = "a call without a name is never answered"
	MissingIDInternal       Fault = "delete and revoke without an id are INTERNAL"
	EnumsTaken              Fault = "an unknown enum value is taken"
	ProtocolsTaken          Fault = "an unsupported protocol is taken"
	LongInternal            Fault = "an over-long value is INTERNAL"
	ForeignUnknown          Fault = "a foreign id is an error without a code"
	ForeignCrash            Fault = "a foreign id ends the driver"
	CreateRace              Fault = "two creates at once make two buckets"
	GrantRace               Fault = "two grants at once make two accounts"
	KeyRace                 Fault = "two grants at once make two keys"
	ConcurrencyRefused      Fault = "a call beside another is INTERNAL"
	RevokeRace              Fault = "two revokes at once: one is INTERNAL"
	DeleteRace              Fault = "a revoke beside a delete spoils the access"
	PoisonedCreate          Fault = "a create that is given up spoils the name"
	PoisonedGrant           Fault = "a grant that is given up spoils the name"
	PoisonedRevoke          Fault = "a revoke that is given up spoils the access"
	PoisonedDelete          Fault = "a delete that is given up spoils the bucket"
	GrantOutOfRange         Fault = "a grant on a bucket that is gone is OUT_OF_RANGE"
	Details                 Fault = "errors have details"
	NoMessage               Fault = "errors have no message"
	SecretInMessage         Fault = "an error tells the key"
	ChangingMessage         Fault = "errors carry a number of their own"
	InfoHangs               Fault = "DriverGetInfo is never answered"
	GrantOnce               Fault = "grant, repeated, is ALREADY_EXISTS"
	MisspeltKey             Fault = "the access key stands under accessKeyId in v1alpha1"
	AzureWithoutExpiry      Fault = "an Azure token has no expiry in v1alpha1"
	WidestMode              Fault = "the widest of three modes is given for all"
	GeneratesAnotherAccount Fault = "generate, repeated, answers another account_id"
	LostGrants              Fault = "of two grants on one bucket at once, one is lost"
	OldKeysStay             Fault = "grant, repeated, answers another key, and revoke ends the last one only"
	RefusedLeaves           Fault = "a grant that is refused leaves a user"
	RevokeKeepsAccount      Fault = "revoke finds nothing, and leaves the account"
	ForeignUnavailable      Fault = "a foreign id is UNAVAILABLE"
	GrantNever              Fault = "no access is given as it is asked for"
	FirstMode               Fault = "a key for two buckets has the first one's mode in both"
	ExistingOtherID         Fault = "an existing bucket is answered an id that grant does not know"
	RevokeGenerated         Fault = "revoke by an id that was only generated is FAILED_PRECONDITION"
	GrantExistsBeside       Fault = "a grant beside another of its name is ALREADY_EXISTS"
	ForeignPanic            Fault = "a foreign id ends the driver, which is restarted"
	NothingDeleted          Fault = "nothing is ever deleted: delete is FAILED_PRECONDITION"
)

// What a driver may do otherwise and be right.
const (
	AbortsSecond    Fault = "a call beside another of its name is ABORTED"
	OneBucketOnly   Fault = "a grant for two buckets is OUT_OF_RANGE"
	KeepsGranted    Fault = "a bucket that access was given to is not deleted"
	FullKeysOnly    Fault = "a key that may do less is INVALID_ARGUMENT"
	OpaqueIDs       Fault = "ids do not show names"
	ServiceAccounts Fault = "service accounts are served"
	Azure           Fault = "it is a driver for Azure"
	TakesEmptyIDs   Fault = "an empty id is gone already"
	ExistsBeside    Fault = "a create beside another of its name is ALREADY_EXISTS, and OK when repeated"
	InternalBeside  Fault = "a revoke beside another is INTERNAL, and OK when repeated"
	FewKeys         Fault = "a bucket's third access is RESOURCE_EXHAUSTED"
	ReadsObjects    Fault = "delete and revoke are INTERNAL without the Bucket object"
	NeedsParameters Fault = "create needs a parameter"
	PrivateStore    Fault = "the store's certificate is signed by an authority of its own"
	StoreElsewhere  Fault = "the store is reached otherwise from here"
)

// Habits are all that are right and need not be told to the suite.
func Habits() []Fault {
	return []Fault{AbortsSecond, OneBucketOnly, KeepsGranted, FullKeysOnly, OpaqueIDs, ServiceAccounts, Azure, TakesEmptyIDs, ExistsBeside, InternalBeside, NeedsParameters, FewKeys}
}

// Faults are all that are wrong.
func Faults() []Fault {
	return []Fault{
		NameTooLong, NameUpperCase, NoProtocols, ProtocolTwice, NoBucketID, LongBucketID, SlashInBucketID,
		LongAccountID, NewBucketID, OneBucketID, CreateAnything, NoProtocolInfo, UnsupportedInfo, DeleteNotFound,
		DeletePrecondition, DeleteUnknown, ExistingNotFound, ExistingInvented, ExistingAnything,
		GeneratesAnother, GeneratesOne, GeneratesSpaces, GenerateMakes, NoAccountID,
		NoRegion, TwoCredentials, NoStyle, NewAccountID, NewKey, RotatedKey, OneAccountID, GrantExists,
		GrantAnything, GrantUnknown, OneInfo, OrderMatters, IAMFailed, RevokeNotFound, RevokeUnknown,
		RevokeNeedsBucket, DeadKeys, BucketElsewhere, ImmortalKeys, RevokesAll, MasterKeys, NoModes, ModesShifted,
		MissingInternal, MissingHangs, MissingIDInternal, EnumsTaken, ProtocolsTaken,
		LongInternal, ForeignUnknown, ForeignCrash, CreateRace, GrantRace, KeyRace, ConcurrencyRefused, RevokeRace,
		DeleteRace, PoisonedCreate, PoisonedGrant, PoisonedRevoke, PoisonedDelete, GrantOutOfRange, Details,
		NoMessage, SecretInMessage, ChangingMessage, NothingDeleted, InfoHangs, GrantOnce, MisspeltKey,
		WidestMode, GeneratesAnotherAccount, LostGrants, OldKeysStay, RevokeKeepsAccount, ForeignPanic, ForeignUnavailable,
		FirstMode, ExistingOtherID, RevokeGenerated, GrantExistsBeside,
	}
}
