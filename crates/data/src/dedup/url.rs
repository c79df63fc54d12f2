//! Documents that come from where private ones come from.

use std::collections::HashSet;
use undertone_settings::SettingsError;

use super::DedupSource;
use super::minhash::hash_bytes;
use crate::error::{Result, invalid};

/// URLs of private documents, by hash, and whole hosts.
#[derive(Debug)]
pub(super) struct UrlFilter {
    private: HashSet<u64>,
    hosts: Vec<String>,
}

impl UrlFilter {
    /// `None` where nothing is removed by URL.
    pub(super) fn new(
        public: &DedupSource,
        private: &DedupSource,
        hosts: &[String],
    ) -> Result<Option<UrlFilter>> {
        if private.url.is_none() && hosts.is_empty() {
            return match &public.url {
                None => Ok(None),
                Some(column) => Err(invalid(
                    "url",
                    "URLs to remove: a URL column of the private corpus, or hosts",
                    format!("the public column \"{column}\" alone"),
                )),
            };
        }
        if public.url.is_none() {
            return Err(
                SettingsError::missing("url", "the name of the URL column of the public corpus").into(),
            );
        }
        Ok(Some(UrlFilter {
            private: HashSet::new(),
            hosts: hosts.iter().map(|host| normal(host)).collect(),
        }))
    }

    pub(super) fn learn(&mut self, url: &str) {
        self.private.insert(hash_bytes(normal(url).as_bytes()));
    }

    pub(super) fn removes(&self, url: &str) -> bool {
        let url = normal(url);
        let host = url.split(['/', '?', ':']).next().unwrap_or_default();
        let below = |other: &String| {
            host.strip_suffix(other.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.hosts.iter().any(below) || self.private.contains(&hash_bytes(url.as_bytes()))
    }
}

/// Without scheme, `www.`, fragment and final slash; the host in lower case.
fn normal(url: &str) -> String {
    let url = url.trim();
    let url = url.split_once("://").map_or(url, |(_, rest)| rest);
    let url = url.split('#').next().unwrap_or_default();
    let end = url.find(['/', '?']).unwrap_or(url.len());
    let (host, rest) = url.split_at(end);
    let host = host.to_ascii_lowercase();
    let host = host.strip_prefix("www.").unwrap_or(&host);
    format!("{host}{}", rest.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_without_what_does_not_matter() {
        let check = |url, expected| assert_eq!(normal(url), expected);
        check("https://www.Example.org/A/b/#top", "example.org/A/b");
        check("http://example.org", "example.org");
        check(" example.org/?q=1 ", "example.org/?q=1");
        let mut filter = UrlFilter {
            private: HashSet::new(),
            hosts: vec![normal("Example.org")],
        };
        filter.learn("https://news.test/one/");
        let removes = |url| filter.removes(url);
        assert!(removes("https://example.org/x") && removes("http://sub.example.org:80/"));
        assert!(!removes("https://notexample.org/x") && !removes("https://example.org.test/"));
        assert!(removes("http://www.news.test/one") && !removes("http://news.test/One"));
    }
}
