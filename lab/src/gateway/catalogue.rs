//! The APIs of API management: their operations, and the subscriptions of callers.

/// The number of APIs. Test builds start gateways often, and need seconds for 1,000 APIs.
pub(crate) const APIS: usize = if cfg!(debug_assertions) { 100 } else { 1000 };

/// The resources of an API. Each resource has two operations: the collection, and one item.
pub(crate) const RESOURCES: usize = 10;

/// The number of operations of an API.
pub(crate) const OPERATIONS: usize = 2 * RESOURCES;

/// The name of an API.
pub(crate) fn name(api: usize) -> String {
    format!("api-{api:04}")
}

/// The path below which the operations of an API are.
pub(crate) fn base(api: usize) -> String {
    format!("/{}/v1", name(api))
}

/// The path of a collection, below the base path.
pub(crate) fn collection(resource: usize) -> String {
    format!("/r{resource:02}")
}

/// The APIs that one of the callers may call: the first API, which all checks call, and its share of all APIs.
pub(crate) fn subscribed(caller: usize, callers: usize) -> Vec<usize> {
    let is_mine = |api: &usize| *api == 0 || api % callers == caller % APIS;
    (0..APIS).filter(is_mine).collect()
}

/// The path of an operation, with the query that determines the size of the response. All paths have the same length
/// for the same size.
pub(crate) fn path(api: usize, operation: usize, size: Option<u64>) -> String {
    let (resource, is_item) = (operation / 2 % RESOURCES, operation % 2 == 1);
    let detail = if is_item { "/12345?" } else { "?p=000&" };
    let size = size.map_or(String::new(), |bytes| format!("s={bytes}"));
    base(api) + &collection(resource) + detail + &size
}

/// The paths of all operations, each operation of each API once, so that the call with a number is for an API to which
/// the caller with the same number is subscribed.
pub(crate) fn paths(size: Option<u64>) -> Vec<String> {
    (0..OPERATIONS).flat_map(|operation| (0..APIS).map(move |api| path(api, operation, size))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_call_is_for_an_api_of_its_caller() {
        let paths = paths(Some(1024));
        assert_eq!(paths.len(), APIS * OPERATIONS);
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
        assert!(paths.iter().all(|path| path.len() == paths[0].len()), "{}", paths[0]);
        for callers in [1, 20, 1000, 10_000] {
            let subscribed: Vec<Vec<usize>> =
                (0..callers).map(|caller| subscribed(caller, callers)).collect();
            for (number, path) in paths.iter().enumerate() {
                let apis = &subscribed[number % callers];
                assert!(apis.iter().any(|api| path.starts_with(&base(*api))), "{callers}: call {number}");
            }
        }
        assert_eq!(subscribed(3, APIS), [0, 3]);
    }
}
